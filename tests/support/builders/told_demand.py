"""A Prometheus that has a history of demand, and says nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit


@contextmanager
def told_demand(histories: dict[str, list[str | None]]) -> Iterator[str]:
    """Yield the url of one that answers a query with its history, of which the last value is of the last step.

    None stands for a step without a sample.
    """

    class Prometheus(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            assert address.path == "/api/v1/query_range"
            values = histories.get(asked["query"])
            step, last = float(asked["step"]), float(asked["end"])
            first = last - (len(values or ()) - 1) * step
            samples = [[first + step * at, value] for at, value in enumerate(values or ()) if value is not None]
            samples = [sample for sample in samples if sample[0] >= float(asked["start"])]
            result = [] if values is None else [{"metric": {}, "values": samples}]
            body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
