"""Colour and dashes of a line, from its label: the scheme says the colour, the rest the dashes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Look = tuple[str, Any]
"""Colour and dashes of a line, as matplotlib takes them."""

COLOURS: Mapping[str, str] = {
    "dgd": "#1b1b1b",
    "pgc-cr": "#cc6611",
    "gc-cr": "#0077bb",
    "is-sgd": "#00aa88",
    "pgc-fr": "#bb1177",
    "gc-fr": "#77ccdd",
    "pgc-fr-staggered": "#aa88ff",
    "pgc-cr-naive": "#882200",
    "is-gc-cr": "#6600ff",
    "is-gc-fr": "#aacc00",
    "is-gc-hr": "#551166",
    "async": "#1100bb",
}
"""A scheme has the same colour in every picture; a scheme of somebody's own gets one that is left over.

Found by a search for twelve that stay apart in the three kinds of colour blindness, and dark enough for white paper.
"""

DASHES: Sequence[Any] = ("-", (0, (5, 1.8)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2.5)), (0, (3, 3)))


def looks(labels: Sequence[str]) -> list[Look]:
    """For each label such as ``pgc-cr s=2``; lines without dashes for the least rest."""
    cases = [scheme_and_rest(label) for label in labels]
    schemes = dict.fromkeys(scheme for scheme, _ in cases)
    free = [colour for name, colour in COLOURS.items() if name not in schemes] or list(COLOURS.values())
    strangers = [scheme for scheme in schemes if scheme not in COLOURS]
    colours = {**COLOURS, **{scheme: free[place % len(free)] for place, scheme in enumerate(strangers)}}
    # "dgd" beside "pgc-cr s=1" needs no dashes of its own; "pgc-cr" beside "pgc-cr s=1" does.
    torn = any(not rest and sum(other == scheme for other, _ in cases) > 1 for scheme, rest in cases)
    rests = sorted({rest for _, rest in cases if rest or torn}, key=natural)
    dashes = {rest: DASHES[place % len(DASHES)] for place, rest in enumerate(rests)}
    return [(colours[scheme], dashes.get(rest, DASHES[0])) for scheme, rest in cases]


def scheme_and_rest(label: str) -> tuple[str, str]:
    """``pgc-cr s=2`` in two."""
    scheme, _, rest = label.partition(" ")
    return scheme, rest


def natural(label: str) -> list[str | int]:
    """To sort s=2 before s=10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", label)]
