"""One page about runs that have been, for any browser: nothing of it comes from elsewhere, and it runs no script.

Importing this file imports matplotlib.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgczmq.view import words
from pgczmq.view.page.html import Html, tag
from pgczmq.view.page.html import picture as html_picture
from pgczmq.view.page.parts import cards, configuration, events, overview, scheme, workers
from pgczmq.view.page.style import STYLE
from pgczmq.view.pictures.paper import content
from pgczmq.view.pictures.run_panels import Shown, panels
from pgczmq.view.pictures.run_plots import has_map, heat_figure, panel_figure

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser lets the page do, should foreign text ever get into it as markup."""


@dataclass(frozen=True)
class Page:
    """What a page is made of.

    Args:
        runs: at least one.
        explanations: of the scheme of each, as ``pgczmq.app.explain.explain`` returns it; None where there is none.
        made_with: names and versions of the programs that make the page.
    """

    runs: Sequence[Shown]
    explanations: Sequence[Mapping[str, Any] | None]
    made_with: Mapping[str, str]


def written(page: Page) -> str:
    """The page as HTML; the same runs give the same bytes."""
    runs = page.runs
    name = runs[0].run.name if len(runs) == 1 else f"{len(runs)} runs"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"{name} - pgczmq"),
        tag("style", Html(STYLE)),
    )
    parts = _one(runs[0]) if len(runs) == 1 else [overview(runs)]
    body = [tag("h1", name), *parts, *_pictures(runs), *_schemes(page)]
    for one in runs:
        body += _details(one, alone=len(runs) == 1)
    body += [configuration([one.run for one in runs], [one.label for one in runs]), _footer(page)]
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def _one(one: Shown) -> list[Html]:
    task = str(one.run.setting("task", "name") or "a task")
    state = tag("b", one.run.state, class_=one.run.state)
    reason = one.run.result.reason if one.run.result and one.run.result.reason != "done" else ""
    about = f"{task} with {one.label}, {words.count(one.past.workers, 'worker')}: "
    return [tag("p", about, state, f" ({reason})" if reason else ""), cards(one)]


def _pictures(runs: Sequence[Shown]) -> list[Html]:
    drawn = []
    for panel in panels(runs):
        drawn.append(html_picture(content(panel_figure(panel, runs), ".svg"), panel.title))
    return [tag("h2", "What happened"), tag("div", *drawn, class_="pictures")]


def _schemes(page: Page) -> list[Html]:
    """Each scheme once, and once more where another run had it with other numbers: then by the labels of the runs."""
    found: dict[Html, tuple[str, str, Mapping[str, Any] | None]] = {}
    for one, explanation in zip(page.runs, page.explanations, strict=True):
        name = str(one.run.setting("scheme", "name") or "unknown")
        found.setdefault(scheme(name, explanation, name), (name, one.label, explanation))
    times = Counter(name for name, _, _ in found.values())
    parts = [scheme(name, told, label if times[name] > 1 else name) for name, label, told in found.values()]
    return [tag("h2", "The scheme" if len(parts) == 1 else "The schemes"), *parts]


def _details(one: Shown, *, alone: bool) -> list[Html]:
    heading = tag("h2", "Workers and events" if alone else f"{one.label}: workers and events")
    drawn = []
    if has_map(one):
        alt = "Who answered when: how long each worker took at each step"
        drawn = [html_picture(content(heat_figure(one), ".svg"), alt, class_="map"), workers(one)]
    return [heading, *drawn, events(one)]


def _footer(page: Page) -> Html:
    programs = ", ".join(f"{name} {version}" for name, version in page.made_with.items())
    text = f"This page was made with {programs}; with what a run was made is one of its events."
    return tag("footer", tag("p", text))
