"""Docs, docstrings, comments and messages are plain English: short sentences without habit words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import page_files
from prose import HABITS, Measure, sentences_of
from repository import ROOT

HOUSES = ("operator", "predictors", "sim")
WORDS_A_SENTENCE, LONG_SHARE, HABIT_WORDS = 16.0, 0.08, 3.0
"""Near the docstrings of kopf and dask: 13 to 15 words, 6 to 8 % of sentences above 30, .8 to 1.2 habit words."""
SMALL_FOLDER_WORDS = 1000
"""Below this a folder is too small for figures of its own (chosen)."""


PAGE_WORDS_A_SENTENCE, PAGE_HABIT_WORDS = 17.0, 2.0
"""Near the docs of Kueue, Karpenter and dask: 14 to 15 words, .6 to 1.1 habit words."""
SMALL_PAGE_WORDS = 500
"""Below this one habit word is too much of a page (chosen)."""


def breaks_a_limit(measure: Measure, words: float = WORDS_A_SENTENCE, habits: float = HABIT_WORDS) -> bool:
    return measure.mean_words > words or measure.long_share > LONG_SHARE or measure.habits > habits


def breaks_a_limit_of_pages(measure: Measure) -> bool:
    return breaks_a_limit(measure, PAGE_WORDS_A_SENTENCE, PAGE_HABIT_WORDS)


def test_the_prose_of_the_pages_is_plain() -> None:
    measure = Measure.of(sentence for path in page_files() for sentence in sentences_of(path))
    assert measure.words > 20_000
    assert not breaks_a_limit_of_pages(measure), str(measure)


def test_the_prose_of_each_page_is_plain() -> None:
    measures = {str(path.relative_to(ROOT)): Measure.of(sentences_of(path)) for path in page_files()}
    long = {name: measure for name, measure in measures.items() if measure.words > SMALL_PAGE_WORDS}
    assert len(long) > 20
    assert {name: str(measure) for name, measure in long.items() if breaks_a_limit_of_pages(measure)} == {}


@pytest.mark.parametrize("house", HOUSES)
def test_the_prose_of_a_house_is_plain(house: str) -> None:
    measure = measure_of(ROOT / house)
    assert measure.words > 10_000
    assert not breaks_a_limit(measure), str(measure)


def test_the_prose_of_each_folder_is_plain() -> None:
    folders = [folder for house in HOUSES for folder in (ROOT / house).glob("cotide_*/*/")]
    measures = {str(folder.relative_to(ROOT)): measure_of(folder) for folder in folders}
    found = {name: str(one) for name, one in measures.items() if one.words > SMALL_FOLDER_WORDS and breaks_a_limit(one)}
    assert len(measures) > 40
    assert found == {}


def measure_of(folder: Path) -> Measure:
    return Measure.of(sentence for path in sorted(folder.rglob("*.py")) for sentence in sentences_of(path))


PYTHON = '''"""Keeps the books, which is said of `a_long name here` alone."""

LIMIT = 3
"""Of all tenants together."""


def raises(name):
    """Raise always.

    Parameters
    ----------
    name : str
        The name of whoever asks.
    """
    # The first line of a comment
    # and its second line.
    label = "key"
    raise ValueError(f"there is no {name} in the book of this tenant")
'''


def test_docstrings_comments_and_messages_of_a_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(PYTHON)
    assert sorted(sentences_of(path)) == [
        "Keeps the books, which is said of X alone.",
        "Of all tenants together.",
        "The first line of a comment and its second line.",
        "The name of whoever asks.",
        "there is no X in the book of this tenant",
    ]


MARKDOWN = """# A heading of many words here

The first sentence has a [link to a page](https://example.com/who). The second follows it.

| a table | of words that count for nothing |

```
code that nobody reads as prose
```

- A list entry is a sentence, too.
"""


def test_prose_of_a_page_is_read_without_code_tables_and_headings(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(MARKDOWN)
    assert sentences_of(path) == [
        "The first sentence has a link to a page.",
        "The second follows it.",
        "- A list entry is a sentence, too.",
    ]


def test_a_measure_counts_words_long_sentences_and_habits() -> None:
    long = " ".join(["word"] * 31)
    measure = Measure.of([long, "Nobody is told of it.", "A plain one."])
    assert (measure.words, measure.mean_words) == (39, 13.0)
    assert measure.long_share == pytest.approx(1 / 3)
    assert measure.habits == pytest.approx(1000 * 2 / 39)
    assert breaks_a_limit(measure)
    assert not breaks_a_limit(Measure.of(["A plain sentence of seven words here."]))


@pytest.mark.parametrize("words", ["it tells", "the one whose", "of which some", "made anew", "Everybody waits"])
def test_habit_words_are_found(words: str) -> None:
    assert HABITS.search(words)


@pytest.mark.parametrize("words", ["it shows", "that which", "whole", "essays", "foretells"])
def test_other_words_are_no_habits(words: str) -> None:
    assert not HABITS.search(words)
