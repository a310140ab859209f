"""The parts of the page about runs, one function each."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pgczmq.rundirs import RunDirectory
from pgczmq.view import words
from pgczmq.view.page.html import Html, details, table, tag, together
from pgczmq.view.page.scheme_words import sentences
from pgczmq.view.pictures.heat import shares
from pgczmq.view.pictures.labels import differing, flat
from pgczmq.view.pictures.past import LATE, MISSING, SPARE, USED, Past
from pgczmq.view.pictures.run_panels import Shown

SMALL = 12
"""Up to so many workers the code is shown."""
LONG = 24
"""Tables with more lines are folded away."""
EVENTS = 300
"""More are only counted."""
QUIET = frozenset({"checkpoint"})


def facts(one: Shown) -> list[tuple[str, str]]:
    """The result in figures, by name."""
    result, past = one.run.result, one.past
    virtual = " virtual" if one.run.simulated else ""
    seconds = float(past.applied_S[-1]) if result is None else result.seconds
    steps = past.step_S.size
    found = [
        ("loss", words.number(one.run.loss)),
        ("steps", f"{steps:,}"),
        ("time", words.duration(seconds) + virtual),
        ("time a step", words.duration(seconds / steps) + virtual),
    ]
    if result is not None and result.accuracy is not None:
        found.insert(1, (result.metric, words.metric(result.accuracy, result.metric)))
    found.append(("late", words.percent(_late_fraction(past) if result is None else result.late_fraction)))
    found.append(("recovered", words.percent(float(np.mean(past.recovered_S)))))
    ages = past.mean_age_S[np.isfinite(past.mean_age_S)]
    found.append(("mean age", f"{words.number(float(ages.mean()) if ages.size else None, 3)} steps"))
    return found


def _late_fraction(past: Past) -> float:
    """Of the answers that came, as a result has it."""
    came = np.count_nonzero(past.fate_SN != MISSING)
    return np.count_nonzero(past.fate_SN == LATE) / came if came else 0.0


def cards(one: Shown) -> Html:
    """The result of one run, large."""
    found = [tag("div", tag("span", name), tag("b", text), class_="card") for name, text in facts(one)]
    return tag("div", *found, class_="cards")


def overview(runs: Sequence[Shown]) -> Html:
    """Several runs beside each other, with the colours of their lines."""
    columns = dict.fromkeys(name for one in runs for name, _ in facts(one))
    rows = []
    for one in runs:
        found = dict(facts(one))
        label = together([_line(one), words.clean(one.label)])
        state = tag("span", one.run.state, class_=one.run.state)
        rows.append([label, one.run.name, state, *(found.get(name, words.NOTHING) for name in columns)])
    return table(["run", "directory", "state", *columns], rows, text_columns=3)


def _line(one: Shown) -> Html:
    """A piece of the line that a run has in the pictures."""
    colour, dashes = one.look
    drawn = {"stroke": colour, "stroke_width": "3"}
    if not isinstance(dashes, str):
        drawn["stroke_dasharray"] = " ".join(f"{2 * length:g}" for length in dashes[1])
    line = tag("line", x1="0", y1="4", x2="34", y2="4", **drawn)
    return tag("svg", line, class_="line", width="34", height="8", aria_hidden="true")


def scheme(name: str, explanation: Mapping[str, Any] | None, heading: str) -> Html:
    """What it does, in words; who holds what with which coefficient, of few workers."""
    text = " ".join(sentences(name, explanation))
    parts = [tag("h3", heading), tag("p", text)]
    if explanation is not None and explanation["workers"] <= SMALL:
        summary = "Who holds what, and with which coefficient its gradient is sent"
        parts.append(details(summary, _code(explanation["encode"])))
    return tag("section", *parts)


def _code(encode: Sequence[Sequence[float]]) -> Html:
    heading = ["worker", *(f"p{partition}" for partition in range(len(encode)))]
    cells = [[words.number(value, 3) if value else "·" for value in row] for row in encode]
    return table(heading, [[str(worker), *row] for worker, row in enumerate(cells)])


def workers(one: Shown) -> Html:
    """A line a worker: what became of its answers, and how long they took."""
    past = one.past
    shares_N4 = shares(past)
    rows = []
    for worker in range(past.workers):
        seconds = past.latency_SN[:, worker]
        seconds = seconds[np.isfinite(seconds)]
        median, slow = np.quantile(seconds, [0.5, 0.95]) if seconds.size else (math.nan, math.nan)
        parts = [words.percent(float(shares_N4[worker, fate])) for fate in (USED, SPARE, LATE, MISSING)]
        rows.append([str(worker), *parts, words.duration(float(median)), words.duration(float(slow))])
    heading = ["worker", "used", "spare", "late", "missing", "median to the answer", "95 % within"]
    found = table(heading, rows)
    return found if past.workers <= LONG else details(f"{past.workers} workers, one by one", found)


def events(one: Shown) -> Html:
    """What happened beside the steps: counted, and told in full as far as it is not too much."""
    counts = Counter(event.kind for event in one.past.events)
    late = int((one.past.fate_SN == LATE).sum())
    kinds = [f"{words.clean(kind)}: {count:,}" for kind, count in counts.items()]
    if late:
        kinds.append(f"late: {late:,}")
    told = [event for event in one.past.events if event.kind not in QUIET]
    rows = [[_after(event.at), event.kind, event.text] for event in told[:EVENTS]]
    more = len(told) - len(rows)
    parts = [table(["after", "kind", "what"], rows, text_columns=3)]
    if more:
        parts.append(tag("p", f"{more:,} more are in events.jsonl.", class_="pale"))
    said = f"{'; '.join(kinds)}." if kinds else "Nothing beside the steps."
    return together([tag("p", said), details("Events", *parts)])


def _after(at: float) -> str:
    """Of a time since the first step."""
    return "before" if at < 0 else words.duration(at)


def configuration(runs: Sequence[RunDirectory], names: Sequence[str]) -> Html:
    """Every setting of every run; what is not the same in all comes first, and is marked."""
    tables = [flat(run.settings) for run in runs]
    different = differing(runs)
    keys = [key for key in dict.fromkeys(key for table in tables for key in table) if key not in different]
    heading = ["setting", *(names if len(runs) > 1 else ["value"])]
    parts = [tag("h2", "Configuration")]
    if different:
        marked = [[key, *(tag("mark", _value(each.get(key))) for each in tables)] for key in different]
        parts += [tag("h3", "What differs"), table(heading, marked, text_columns=len(heading))]
    same = [[key, _value(tables[0].get(key))] for key in keys]
    if same:
        title = "The same in all" if len(runs) > 1 else "All settings"
        parts.append(details(title, table(["setting", "value"], same, text_columns=2)))
    if not any(tables):
        parts.append(tag("p", "No config.toml is there, or none that can be read."))
    return together(parts)


def _value(value: object) -> str:
    """As in TOML, nearly."""
    if value is None:
        return words.NOTHING
    return str(value).lower() if isinstance(value, bool) else str(value)
