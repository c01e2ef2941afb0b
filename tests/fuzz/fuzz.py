"""Coverage-guided fuzzing of every parser of untrusted text: ``python tests/fuzz/fuzz.py SECONDS [TARGET ...]``.

Each target runs in a process of its own for its share of the seconds, as many at a time as there are cores, with a
corpus outside of the repository (COTIDE_FUZZ_CORPUS, else a temporary folder). A target that raises anything but its
own error, takes more than a second for an input of at most 64 KB, or more than 2 GB, fails the run with its input
named. Exit code 77 where there is no atheris for this Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONGEST_BYTES = 65_536
SLOWEST_SECONDS = 5
"""On a shared machine; what takes a second on an idle one."""
MAX_MEGABYTES = 2048
ROUND_SECONDS = 15
"""A process lives so long at most, the next goes on with its corpus; chosen. atheris 3.0.0 keeps memory for what it
follows, 40 kB each time 6 kB of nested JSON are cut: 2 GB within a minute, with nothing kept by what is fuzzed."""


def one(name: str, arguments: list[str]) -> None:
    """Fuzz one target until told to stop; does not return."""
    import atheris

    with atheris.instrument_imports(
        include=["cotide_core", "cotide_files", "cotide_kube", "cotide_operator", "cotide_sim", "cotide_lab"]
    ):
        from fuzz_targets import TARGETS

    target, seeds = TARGETS[name]
    for seed in seeds:  # what a parser loads when it is first called is not its time
        target(seed)
    atheris.Setup([sys.argv[0], *arguments], target)
    atheris.Fuzz()


def _rounds(name: str, corpora: Path, seconds: float, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Fuzz one target for its share, a process after the other; return the last, which is the first that failed."""
    # Kernels run as plain Python: what the fuzzer has instrumented can't be compiled.
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1", "TMPDIR": str(scratch)}
    left = max(1, round(seconds))
    while True:
        now = min(left, ROUND_SECONDS)
        command = [
            sys.executable,
            str(HERE / "fuzz.py"),
            "--target",
            name,
            str(corpora / name),
            f"-max_total_time={now}",
            f"-max_len={LONGEST_BYTES}",
            f"-timeout={SLOWEST_SECONDS}",
            f"-rss_limit_mb={MAX_MEGABYTES}",
            f"-artifact_prefix={corpora}/{name}-",
            "-verbosity=0",
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", env=plain)
        left -= now
        if done.returncode or left <= 0:
            return done


def side_by_side(
    names: Sequence[str], corpora: Path, seconds: float, scratch: Path
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Yield what became of each target, in their order, while a process a core goes on with those to come."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        yield from threads.map(lambda name: _rounds(name, corpora, seconds, scratch), names)


def main(arguments: list[str]) -> int:
    """Share the seconds among the targets."""
    try:
        import atheris  # noqa: F401 - only whether it is there
    except ImportError:
        sys.stderr.write("no fuzzing: atheris is not installed (it has no wheel for this Python)\n")
        return 77
    from fuzz_targets import TARGETS

    seconds = float(arguments[0]) if arguments else 60.0
    names = arguments[1:] or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown or seconds <= 0:
        sys.stderr.write(f"usage: fuzz.py SECONDS [TARGET ...]; targets: {', '.join(TARGETS)}\n")
        return 2
    kept = os.environ.get("COTIDE_FUZZ_CORPUS")
    corpora = Path(kept or tempfile.mkdtemp(prefix="cotide-fuzz-"))
    scratch = Path(tempfile.mkdtemp(prefix="cotide-fuzz-"))
    failed = []
    for name in names:
        corpus = corpora / name
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(TARGETS[name][1]):
            (corpus / f"seed-{number}").write_bytes(seed)
    for name, done in zip(names, side_by_side(names, corpora, seconds / len(names), scratch), strict=True):
        sys.stderr.write(f"{name}: {'nothing found' if done.returncode == 0 else 'FOUND'}\n")
        if done.returncode:
            failed.append(name)
            sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
    shutil.rmtree(scratch)
    if not kept and not failed:  # what was found stands in the corpus's folder
        shutil.rmtree(corpora)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--target"]:
        one(sys.argv[2], sys.argv[3:])
    sys.exit(main(sys.argv[1:]))
