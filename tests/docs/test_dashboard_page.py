"""The page about the dashboard names every key, and explains every word as the dashboard's own help does."""

import re

import pytest
from doc_pages import ROOT

from pgczmq.view.live.dashboard import FOOTER
from pgczmq.view.live.detail import KEYS, WORDS

PAGE = (ROOT / "examples" / "reading-the-dashboard.md").read_text()
ROWS = [
    (row[0].replace("`", "").replace(",", ""), row[1])
    for row in re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
]


@pytest.mark.parametrize(("word", "meaning"), WORDS)
def test_words_mean_what_the_help_says(word: str, meaning: str) -> None:
    assert (word, meaning) in ROWS, "the page says it otherwise than the ? page of the dashboard"


def test_every_key_is_there() -> None:
    names = " ".join(name for name, _ in ROWS).split()
    said = {part for key, _ in KEYS for part in key.replace(",", "").split()}
    assert said | {part for key, _ in FOOTER for part in key.split("/")} <= set(names)
