"""Mutation testing of what must not break: ``python tests/mutation/mutants.py --count 300 --seed 0``.

Each drawn mutant changes one thing in one module of a copy of the tree, and the tests of that module run there within a
time limit. A failure or the end of the time kills it. Survivors are printed with file, line and diff. Exit code 1 where
too many survive or one has no reason in accepted.toml, 2 where the unchanged tests fail.

cosmic-ray makes the mutants. It has no operator that takes a call away, so that one is ours.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mutation_run import Mutant, read_accepted, verdict

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "operator/cotide_operator/"
PREEMPTION = "operator/cotide_core/reclaiming/preemption/"
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "binder": (
        (OPERATOR + "scheduling/binder.py",),
        (
            "tests/operator/scheduling/test_binder.py",
            "tests/operator/scheduling/test_bindings_of_tenants.py",
            "tests/operator/scheduling/test_evictor.py",
            "tests/operator/scheduling/test_volume_binder.py",
            "tests/operator/scheduling/test_preemption_by_priority.py",
        ),
    ),
    "lease": (
        (OPERATOR + "leaderelection/lease.py", OPERATOR + "leaderelection/lease_thread.py"),
        ("tests/operator/leaderelection/test_lease.py", "tests/operator/leaderelection"),
    ),
    "cache": (
        (OPERATOR + "cache/object_cache.py",),
        ("tests/operator/cache/test_object_cache.py", "tests/operator/cache"),
    ),
    "carrier": (
        (OPERATOR + "consolidation/carrier.py",),
        ("tests/operator/consolidation/test_carrier.py", "tests/operator/consolidation"),
    ),
    "reflector": (("operator/cotide_kube/reflector.py",), ("tests/kube/test_reflector.py", "tests/kube")),
    "preemption": (
        tuple(
            PREEMPTION + name
            for name in ("budgets.py", "dry_run.py", "held_by_importance.py", "plans.py", "room_making.py")
        ),
        ("tests/core/reclaiming/preemption", "tests/core/queueing/test_gangs.py", "tests/core/reclaiming"),
    ),
}
"""By name: the modules, and the tests that run for a mutant of any of them. Each has the same share of the mutants.

The tests that look closest come first, since the first failure ends a run."""
OPERATORS = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in (
        "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt",
        "Is_IsNot", "IsNot_Is",
    )),
    *(f"ReplaceBinaryOperator_{pair}" for pair in (
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "BitOr_BitAnd", "BitAnd_BitOr",
    )),
    "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_USub_UAdd", "AddNot", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop",
)  # fmt: skip
"""Of cosmic-ray's: the neighbours of each operator. The others repeat these (``==`` for ``is``), or change nothing."""
LIMIT_FACTOR = 4.0
"""Times as long as the unchanged tests take; chosen: a shared machine may take twice as long."""
LIMIT_SECONDS_LEAST = 30.0


class Sites:
    """The sites of a module where an operator changes something.

    Parameters
    ----------
    file : path from the root of the repository.
    """

    def __init__(self, file: str) -> None:
        from cosmic_ray.ast import ast_nodes, get_ast
        from cosmic_ray.plugins import get_operator

        self._file, self._source = file, (ROOT / file).read_text(encoding="utf-8")
        self._tree, self._meaning = ast.parse(self._source), _meaning(self._source)
        nodes = list(ast_nodes(get_ast(self._source)))
        operators = (*(get_operator(f"core/{name}")() for name in OPERATORS), _call_remover())
        self._all = [
            (operator, occurrence, line)
            for operator in operators
            for occurrence, line in enumerate(
                start[0] for node in nodes for start, _ in operator.mutation_positions(node)
            )
        ]

    def ranked(self, seed: str) -> Iterator[tuple[bytes, int]]:
        """Return each site with its rank.

        The rank depends on the site alone, so that a change elsewhere in the module leaves the other ranks.
        """
        lines, repeats = self._source.splitlines(), Counter[tuple[str, ...]]()
        for number, (operator, _, line) in enumerate(self._all):
            site = (self._file, _within(self._tree, line), type(operator).__name__, lines[line - 1].strip())
            repeats[site] += 1
            yield hashlib.sha256(repr((seed, *site, repeats[site])).encode()).digest(), number

    def mutant(self, number: int) -> Mutant | None:
        """Return the mutant of a site; None where the module means the same with it."""
        from cosmic_ray.mutating import mutate_code

        operator, occurrence, line = self._all[number]
        code = mutate_code(self._source, operator, occurrence)
        if code is None or _meaning(code) in (None, self._meaning):
            return None
        was, becomes = _changed(self._source, code)
        return Mutant(self._file, line, _within(self._tree, line), was, becomes, code)


def _call_remover() -> Any:
    """Return an operator that puts ``pass`` in the place of a statement that only calls."""
    import parso
    from cosmic_ray.operators.operator import Operator

    class RemoveCall(Operator):
        """Takes away a statement that is nothing but a call, awaited or not."""

        def mutation_positions(self, node: Any) -> Iterator[Any]:
            if self._calls(node):
                yield node.start_pos, node.end_pos

        def mutate(self, node: Any, index: int) -> Any:
            taken = parso.parse("pass").children[0]
            taken.prefix = node.get_first_leaf().prefix
            return taken

        @staticmethod
        def _calls(node: Any) -> bool:
            if node.type not in ("atom_expr", "power") or node.parent is None or node.parent.type != "simple_stmt":
                return False
            last = node.children[-1]
            logs = node.get_first_leaf().value == "_LOG"  # its words are for people
            return bool(last.type == "trailer" and last.children[0].value == "(") and not logs

        @classmethod
        def examples(cls) -> tuple[Any, ...]:
            return ()

    return RemoveCall()


def _meaning(source: str) -> str | None:
    """Return a module without what no test should repeat; None for one that does not parse.

    That are annotations and docstrings, which no run reads; options of classes (frozen, slots) and the kinds of
    parameters, which hinder mistakes; and the numbers of constants, whose values are tuned or cited.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation):
            node.value = ast.Constant(0) if _is_number(node.value) else node.value
            if isinstance(node.value, ast.Call):  # a back-off of so many seconds
                for keyword in node.value.keywords:
                    keyword.value = ast.Constant(0) if _is_number(keyword.value) else keyword.value
    for inner in ast.walk(tree):
        if isinstance(inner, ast.arg):
            inner.annotation = None
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            inner.returns = None
        elif isinstance(inner, ast.arguments):
            inner.args = [*inner.posonlyargs, *inner.args, *inner.kwonlyargs]
            inner.defaults = [*inner.defaults, *(value for value in inner.kw_defaults if value is not None)]
            inner.posonlyargs, inner.kwonlyargs, inner.kw_defaults = [], [], []
        elif isinstance(inner, ast.ClassDef):
            inner.keywords, inner.decorator_list = [], []
        elif isinstance(inner, ast.AnnAssign):
            inner.annotation = ast.Constant(0)
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            inner.value = ast.Constant(0)
    return ast.dump(tree)


def _is_number(value: ast.expr | None) -> bool:
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.Tuple):
        return all(map(_is_number, value.elts))
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def _changed(source: str, code: str) -> tuple[str, str]:
    lines = list(difflib.ndiff(source.splitlines(), code.splitlines()))
    was, becomes = ([line[2:].strip() for line in lines if line.startswith(mark)] for mark in "-+")
    return " / ".join(was), " / ".join(becomes)


def _within(tree: ast.Module, line: int) -> str:
    """Return the class and function around a line."""
    names: list[str] = []
    around: list[ast.stmt] = tree.body
    while True:
        inner = next(
            (
                one
                for one in around
                if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and one.lineno <= line <= (one.end_lineno or one.lineno)
            ),
            None,
        )
        if inner is None:
            return ".".join(names)
        names.append(inner.name)
        around = inner.body


def drawn(count: int, seed: int, only: str, skip: int = 0) -> list[tuple[str, Mutant]]:
    """Return that many mutants with the name of their target, the same share of each but its first ``skip``."""
    names = [only] if only else list(TARGETS)
    found: list[tuple[str, Mutant]] = []
    for turn, name in enumerate(names):
        share = count // len(names) + (turn < count % len(names))
        modules = [Sites(file) for file in TARGETS[name][0]]
        every = sorted((*site, at) for at, sites in enumerate(modules) for site in sites.ranked(f"{seed} {name}"))
        mutants = (modules[at].mutant(number) for _, number, at in every)
        found += [
            (name, mutant) for mutant in islice((mutant for mutant in mutants if mutant is not None), skip, share)
        ]
    return found


@dataclass
class Bench:
    """A copy of the tree in which tests run with one module changed."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Bench:
        """Copy the tree: what git follows, with what is not committed yet."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        return cls(folder)

    def passes(self, tests: tuple[str, ...], limit_seconds: float | None = None, *, keep: bool = False) -> bool:
        """Whether the tests pass within the time; ``keep``: what is compiled stays for the next run."""
        paths = [str(self.folder / root) for root in ("operator", "predictors", "sim")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not keep:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *self._files(tests)]
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                return process.wait(limit_seconds) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return False

    def _files(self, tests: tuple[str, ...]) -> list[str]:
        """Return the files of tests in their order; pytest would sort a file into a folder that follows it."""
        found: dict[str, None] = {}
        for name in tests:
            path = self.folder / name
            found.update((str(file), None) for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py"))))
        return list(found)

    def survives(self, mutant: Mutant, tests: tuple[str, ...], limit_seconds: float) -> bool:
        """Whether the tests pass with a mutant in the place of its module."""
        path = self.folder / mutant.file
        before = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.code)
            return self.passes(tests, limit_seconds)
        finally:
            self._write(path, before)

    @staticmethod
    def _write(path: Path, code: str) -> None:
        path.write_text(code, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # two mutants of one second and one size look the same to Python

    def imports_itself(self) -> bool:
        """Whether Python takes the packages of this copy, and not those that are installed."""
        code = "import cotide_core, cotide_kube, cotide_operator; print(cotide_core.__file__, cotide_operator.__file__)"
        paths = [str(self.folder / root) for root in ("operator", "predictors", "sim")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )
        return all(name.startswith(str(self.folder)) for name in done.stdout.split())


def shown(mutant: Mutant) -> str:
    """Return where a mutant is and what it changes."""
    source = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()
    difference = difflib.unified_diff(source, mutant.code.splitlines(), mutant.file, mutant.file, lineterm="", n=2)
    return "\n".join([f"{mutant.file}:{mutant.line} in {mutant.within or 'the module'}", *list(difference)[2:]])


def main(arguments: list[str]) -> int:
    """Draw, run and judge."""
    parser = argparse.ArgumentParser(description="Mutation testing")
    parser.add_argument("--count", type=int, default=300, help="mutants that are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*TARGETS, ""], default="", help="one target")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of each target, which ran before")
    options = parser.parse_args(arguments)
    chosen = drawn(options.count, options.seed, options.only, options.skip)
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="cotide-mutants-") as folder:
        bench = Bench.made(Path(folder).resolve())
        if not bench.imports_itself():
            print("mutants: the copy imports the installed packages", file=sys.stderr)
            return 2
        limits: dict[str, float] = {}
        for number, (name, mutant) in enumerate(chosen, 1):
            tests = TARGETS[name][1]
            if name not in limits:
                started = time.monotonic()
                # The first run in a new copy compiles kernels, which may take longer than a test waits for something.
                if not (bench.passes(tests, keep=True) or bench.passes(tests, keep=True)):
                    print(f"mutants: the tests of {name} fail without a change", file=sys.stderr)
                    return 2
                limits[name] = max(LIMIT_SECONDS_LEAST, LIMIT_FACTOR * (time.monotonic() - started))
            alive = bench.survives(mutant, tests, limits[name])
            print(f"{number}/{len(chosen)} {'SURVIVES' if alive else 'killed'} {mutant.file}:{mutant.line}", flush=True)
            if alive:
                survivors.append(mutant)
                print(shown(mutant), flush=True)
    why = verdict(len(chosen), survivors, read_accepted())
    print(f"mutants: {len(survivors)} of {len(chosen)} survive (seed {options.seed})")
    for sentence in why:
        print(f"mutants: {sentence}", file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
