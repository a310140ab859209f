"""Pictures of screens, and those that stand in examples/: whole, and with nothing in them that comes from elsewhere."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_up_run import picture_of, records
from rich.text import Text
from screenshot import svg

from pgczmq.view.live.dashboard import render
from pgczmq.view.live.keys import Look

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMESPACE = "http://www.w3.org/2000/svg"


def texts(picture: str) -> list[str]:
    """All that is written in it; fails where it is no XML."""
    return [found.text or "" for found in ElementTree.fromstring(picture).iter(f"{{{NAMESPACE}}}text")]


def test_a_frame_as_a_picture() -> None:
    frame = render(picture_of(*records(8, done=60)), now=16.0, width=80, height=24, look=Look())
    picture = svg([Text.from_ansi(line.ansi(True)) for line in frame.lines], "a <run>")
    written = texts(picture)
    assert "a <run>" in written
    assert "60/100 steps" in written
    assert "learning" in written
    assert picture.count("<circle") == 3


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("dashboard*.svg")), ids=lambda path: path.name)
def test_the_pictures_in_the_documentation(path: Path) -> None:
    picture = path.read_text()
    assert {"learning", "estimate"} <= set(texts(picture))
    assert picture.count("http") == 1  # its name space
    assert len(picture) < 100_000
