"""Measures prose: the length of sentences, and words that this project once overused.

Used by `tests/house/test_prose.py`, and by hand for the sentences to rewrite first::

    python tests/support/prose.py --worst 15 operator/cotide_core/cycle.py docs/*.md

It reads docstrings, comments and messages of Python files. A message is a text of at least `MESSAGE_WORDS` words. It
leaves out drawings and formulas in docstrings of modules, and code, tables, headings and targets of links in Markdown.
A name between backticks counts as one word.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LONG_WORDS: Final = 30
"""A sentence above this length is long."""
LEAST_WORDS: Final = 3
"""Shorter fragments are labels, not sentences."""
MESSAGE_WORDS: Final = 4
HABITS: Final = re.compile(
    r"\b(?:say|says|said|tell|tells|told|who|whom|whose|whoever|nobody|somebody|everybody|aside|besides?|anew|lately"
    r"|thereof|therein|(?:of|from|to|by|in|for|on|with) (?:which|what|whom))\b",
    re.IGNORECASE,
)

_NAME: Final = re.compile(r"`+[^`]*`+")
_NUMPYDOC: Final = re.compile(r"^\s*(?:\w[\w, *]* : .*|-{3,})$", re.MULTILINE)
_BLOCKS: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[-+*]|\d+\.) )")
_ENDS: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z\"(])")
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_NO_PROSE: Final = re.compile(r"\s*(?:[|#<]|!\[|\{\{|:::|\.\. )|\s{4,}\S")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Measure:
    """Figures of some sentences: their words, words a sentence, share of long ones, habit words in a thousand."""

    words: int
    mean_words: float
    long_share: float
    habits: float

    @classmethod
    def of(cls, sentences: Iterable[str]) -> Measure:
        """Measure sentences; zeros without any."""
        found = list(sentences)
        lengths = [len(sentence.split()) for sentence in found]
        words = sum(lengths)
        if not words:
            return cls(0, 0.0, 0.0, 0.0)
        habits = sum(len(HABITS.findall(sentence)) for sentence in found)
        long_share = sum(length > LONG_WORDS for length in lengths) / len(lengths)
        return cls(words, words / len(lengths), long_share, 1000.0 * habits / words)

    def __str__(self) -> str:
        return (
            f"{self.words} words, {self.mean_words:.1f} a sentence, {self.long_share:.0%} of sentences above "
            f"{LONG_WORDS} words, {self.habits:.1f} habit words in a thousand"
        )


def sentences_of(path: Path) -> list[str]:
    """Return the sentences of a Python or Markdown file."""
    text = path.read_text(encoding="utf-8")
    blocks = _python_blocks(text) if path.suffix == ".py" else _markdown_blocks(text)
    return [sentence for block in blocks for sentence in _sentences(block)]


def _sentences(block: str) -> Iterator[str]:
    for part in _BLOCKS.split(_NAME.sub("X", block)):
        for sentence in _ENDS.split(" ".join(part.split())):
            if len(sentence.split()) >= LEAST_WORDS:
                yield sentence


def _markdown_blocks(text: str) -> Iterator[str]:
    text = _FENCED.sub("", _FRONT_MATTER.sub("", text))
    yield _LINK.sub(r"\1", "\n".join(line for line in text.splitlines() if not _NO_PROSE.match(line)))


def _python_blocks(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    read = set[ast.expr]()
    if tree.body and _is_text(tree.body[0]):
        read.add(tree.body[0].value)
        whole = ast.get_docstring(tree) or ""
        yield "\n".join(line for line in whole.splitlines() if not line.startswith("    "))
    for node in ast.walk(tree):
        if _is_text(node) and node.value not in read:  # a docstring, or the text below an attribute
            read.add(node.value)
            yield _NUMPYDOC.sub("", str(node.value.value))
        elif isinstance(node, ast.JoinedStr):
            read.update(node.values)
            yield from _message("".join(_shown(value) for value in node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in read:
            yield from _message(node.value)
    yield from _comments(text)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _shown(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "X"


def _message(text: str) -> Iterator[str]:
    if len(text.split()) >= MESSAGE_WORDS and re.search(r"[a-z]{3,} [a-z]{2,} ", text):
        yield text


def _comments(text: str) -> Iterator[str]:
    """Yield comments; lines that follow each other are one."""
    lines, last = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        row = token.start[0]
        if lines and row != last + 1:
            yield "\n".join(lines)
            lines = []
        lines.append(token.string.lstrip("# "))
        last = row
    if lines:
        yield "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the prose of Python and Markdown files.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--worst", type=int, default=0, help="print so many of the longest sentences, and all with habits"
    )
    options = parser.parse_args()
    found = [(path, sentence) for path in options.files for sentence in sentences_of(path)]
    print(Measure.of(sentence for _, sentence in found))
    if options.worst:
        for path, sentence in sorted(found, key=lambda item: -len(item[1].split()))[: options.worst]:
            print(f"{path}: {len(sentence.split())} words: {sentence[:200]}")
        for path, sentence in found:
            if HABITS.search(sentence):
                print(f"{path}: habit: {sentence[:200]}")


if __name__ == "__main__":
    main()
