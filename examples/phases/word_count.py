"""Counts the words of a text in two phases: read it with little cpu, then count on many cores.

Run by `job.yaml`. In a pod it says its phase by an annotation of its own, and waits until Cotide has given its
container the size of that phase; anywhere else it just goes on.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GRANTED = Path("/etc/podinfo/granted-phase")
PATIENCE_SECONDS = 900


def enter(phase: str) -> None:
    """Say that a phase begins, and wait for its size."""
    if not (ACCOUNT / "token").is_file():
        return
    namespace = (ACCOUNT / "namespace").read_text()
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods/{os.environ['HOSTNAME']}",
        data=json.dumps({"metadata": {"annotations": {"cotide.dev/phase": phase}}}).encode(),
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
            "Content-Type": "application/merge-patch+json",
        },
        method="PATCH",
    )
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        urllib.request.urlopen(request, timeout=30, context=trust).close()  # noqa: S310 - the same
    except urllib.error.URLError as error:
        print(f"can't say the phase, and goes on as it is: {error}", file=sys.stderr)
        return
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and (not GRANTED.is_file() or GRANTED.read_text().strip() != phase):
        time.sleep(1)


def words_of(text: str) -> Counter[str]:
    """Count the words of a part."""
    return Counter(text.lower().split())


def main() -> None:
    """Read the texts that are named, count on all cores, print the ten most frequent words."""
    enter("read")
    lines = [
        line for name in sys.argv[1:] for line in Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    enter("count")
    parts = ["\n".join(lines[start::8]) for start in range(8)]
    with ProcessPoolExecutor() as pool:
        counted = sum(pool.map(words_of, parts), Counter[str]())
    for word, count in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:10]:
        print(count, word)


if __name__ == "__main__":
    main()
