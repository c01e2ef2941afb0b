"""Time that jumps: an hour of waiting takes no time, in whatever thread it is waited for, and work goes on."""

from __future__ import annotations

import subprocess
import sys

from repository import ROOT

PROGRAM = """\
import jumping_time
jumping_time.install()
import asyncio, threading, time

async def answer(reader, writer):
    await asyncio.sleep(600)
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()

async def ask(port):
    there.set()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"said\\n")
    print((await reader.readline()).decode().strip(), round(time.monotonic() - begun, -1))

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    other = threading.Thread(target=asyncio.run, args=(ask(server.sockets[0].getsockname()[1]),))
    other.start()
    there.wait()
    await asyncio.sleep(3600)
    print(round(time.time() - begun_at, -1), other.is_alive())

there = threading.Event()
jumping_time.begin()
begun, begun_at = time.monotonic(), time.time()
asyncio.run(main())
"""


def test_an_hour_of_waiting_takes_no_time_and_loops_of_two_threads_agree_on_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"PYTHONPATH": str(ROOT / "benchmarks" / "shared")},
    )
    assert done.stdout.splitlines() == ["said 600.0", "3600.0 False"]
