"""The page about runs: whole, of itself, and foreign text in it is text."""

from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from left_runs import done, left_run, made_up

from pgczmq import rundirs
from pgczmq.runlog import EventRecord
from pgczmq.view.page.document import Page, written
from pgczmq.view.page.html import Html, tag, together
from pgczmq.view.page.parts import facts
from pgczmq.view.page.parts import workers as workers_table
from pgczmq.view.page.scheme_words import sentences
from pgczmq.view.pictures.run_plots import shown

EVIL = "<script>alert(1)</script>\"'&\x1b[31m\u202e"
VOID = {"img", "meta", "br"}
EXPLANATION = {
    "scheme": "pgc-cr",
    "workers": 2,
    "load": 2,
    "k": 1,
    "policy": "fixed",
    "wait": "k",
    "evaluates": [[0], [1]],
    "encode": [[1.0, 0.5], [1.0, 0.0]],
}


class Seen(HTMLParser):
    """Elements with their attributes, and the text; every element that is opened is closed, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.headings: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data
        if self._open and self._open[-1] == "h3":
            self.headings.append(data)

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def page_of(*directories: Path) -> str:
    runs = shown([rundirs.look(directory) for directory in directories])
    return written(Page(runs, [EXPLANATION, *[None] * (len(runs) - 1)], {"pgczmq": "1.2.3"}))


def test_one_run(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try", end=done(virtual_seconds=10.0))
    page = page_of(directory)
    seen = Seen(page)
    assert page == page_of(directory)
    for text in ("try", "pgc-cr", "97.2 %", "10.0 s virtual", "closes when 1 of 2 workers have answered", "1.2.3"):
        assert text in seen.text
    assert "worker 3 can no longer be reached" in seen.text
    assert "scheme.stragglers" in seen.text
    assert len(list(seen.of("figure"))) == 6
    assert len(page) < 400_000


def test_nothing_comes_from_elsewhere_and_nothing_runs(tmp_path: Path) -> None:
    page = page_of(left_run(tmp_path / "try", end=done()))
    seen = Seen(page)
    assert not {"script", "link", "iframe", "object", "base", "form", "a"} & {name for name, _ in seen.elements}
    for _, attributes in seen.elements:
        assert not any(name.startswith("on") or name in ("href", "srcset") for name in attributes)
    assert all(str(image["src"]).startswith("data:image/svg+xml;base64,") and image["alt"] for image in seen.of("img"))
    assert "@import" not in page and "url(" not in page
    assert [meta["content"] for meta in seen.of("meta") if "http-equiv" in meta] == [
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    ]


def test_several_runs_say_what_differs(tmp_path: Path) -> None:
    one = left_run(tmp_path / "one", end=done())
    two = left_run(tmp_path / "two", end=done(diverged=True, accuracy=None), stragglers=2)
    seen = Seen(page_of(one, two))
    for text in ("2 runs", "pgc-cr s=1", "pgc-cr s=2", "diverged", "What differs"):
        assert text in seen.text
    assert len(list(seen.of("mark"))) == 4, "name and stragglers, of both"
    assert [line["stroke"] for line in seen.of("line")] == ["#cc6611", "#1b1b1b"]


def test_a_scheme_is_explained_once_unless_runs_had_it_with_other_numbers(tmp_path: Path) -> None:
    directories = [left_run(tmp_path / f"{seed}", stragglers=seed // 2, more=f"[x]\ny = {seed}\n") for seed in range(3)]
    runs = shown([rundirs.look(directory) for directory in directories])
    seen = Seen(written(Page(runs, [EXPLANATION, EXPLANATION, {**EXPLANATION, "k": 2}], {})))
    assert [heading for heading in seen.headings if "pgc-cr" in heading] == [runs[0].label, runs[2].label]
    assert [seen.text.count(f"when {k} of 2 workers have answered") for k in (1, 2)] == [1, 1]


def test_late_is_a_share_of_the_answers_before_there_is_a_result_too(tmp_path: Path) -> None:
    [one] = shown([rundirs.look(left_run(tmp_path / "try"))])
    assert dict(facts(one))["late"] == "6.7 %", "10 of 150 answers; 10 more never came"


def test_foreign_text_is_text(tmp_path: Path) -> None:
    config = EVIL.replace("\x1b", "").replace("\u202e", "").replace('"', "")
    directory = left_run(
        tmp_path / "<img src=x onerror=alert(1)>",
        [*made_up(), EventRecord(1.0, EVIL, EVIL)],
        end=replace(done(), reason=EVIL, metric=EVIL, scheme=EVIL, run=EVIL),
        scheme=config,
        more=f'["{config}"]\nkey = "{config}"\n',
    )
    page = page_of(directory)
    seen = Seen(page)
    assert {name for name, _ in seen.elements} <= {
        name for name, _ in Seen(page_of(left_run(tmp_path / "plain"))).elements
    }
    assert "<script>alert(1)</script>" in seen.text
    assert "\x1b" not in page and "\u202e" not in page
    assert len(list(seen.of("img"))) == 6


def test_a_run_that_is_not_over_or_has_hardly_begun(tmp_path: Path) -> None:
    seen = Seen(page_of(left_run(tmp_path / "try", made_up(steps=1))))
    assert "died" in seen.text


@pytest.mark.parametrize("workers", [24, 25])
def test_tables_of_many_workers_are_folded_away(tmp_path: Path, workers: int) -> None:
    [one] = shown([rundirs.look(left_run(tmp_path / "try", made_up(workers=workers, steps=4)))])
    assert workers_table(one).startswith("<details>") == (workers > 24)


def test_a_scheme_in_words() -> None:
    assert sentences("own:scheme", None) == [
        "A scheme of somebody's own, which is not explained here: its code would have to be run."
    ]
    workers, closing, estimate = sentences("pgc-cr", EXPLANATION)
    assert workers.endswith("Each worker holds 2 partitions and evaluates 1 of them a step.")
    assert closing == "A step closes when 1 of 2 workers have answered."
    assert "every partition is in the estimate" in estimate
    assert "as soon as" in sentences("gc-fr", EXPLANATION | {"wait": "usable"})[1]
    assert "adaptive-k decides" in sentences("is-sgd", EXPLANATION | {"policy": "adaptive-k"})[1]
    assert "evaluates all of them" in sentences("gc-cr", EXPLANATION | {"evaluates": [[0, 1]]})[0]


def test_text_is_escaped_once_and_markup_is_not() -> None:
    inner = tag("b", "<&>", title='"')
    assert inner == '<b title="&quot;">&lt;&amp;&gt;</b>'
    assert together([inner, "<"]) == f"{inner}&lt;"
    assert tag("p", Html("<i>"), class_="x") == '<p class="x"><i></p>'
