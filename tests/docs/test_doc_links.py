"""Links of the pages lead somewhere: files that exist, and headings that are there."""

import re
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, without_blocks

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What may stand behind # in a link to the page, as GitHub makes it of headings."""
    headings = _HEADING.findall(without_blocks(page.read_text()))
    bare = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in bare}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "tests/net/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = without_blocks((ROOT / page).read_text())
    for target in _LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert file.exists() and file.is_relative_to(ROOT), f"{page}: there is no {name}."
        if anchor:
            assert anchor in anchors(file), f"{page}: {name} has no heading #{anchor}; it has {sorted(anchors(file))}."


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        for target in _LINK.findall((ROOT / page).read_text()):
            name = target.partition("#")[0]
            if name.endswith(".md") and not name.startswith("http"):
                linked = ((ROOT / page).parent / name).resolve().relative_to(ROOT).as_posix()
                waiting += [linked] if linked not in seen else []
    assert set(PAGES) - seen == set()
