"""What happens to the networks of a run, and what the run has to do then."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgczmq.bench.hosts.lab import BOTH, Direction
from pgczmq.bench.torture.networks.site import MASTER, Site, worker_host

WORKERS = 6
STRAGGLERS = 2
FULL_RATE = 1e8
SLOW_RATE = 1e7
PACE_SECONDS = 0.03
"""What each worker sleeps before it answers, so that a run does not write thousands of steps a second."""
SETTLED = 10
"""Steps before something happens."""


@dataclass(frozen=True)
class Spell:
    """When something began and when it was over, on ``time.monotonic``."""

    begun: float
    over: float


@dataclass(frozen=True)
class Scenario:
    """One thing that happens.

    Args:
        name: one word.
        what: for people.
        hit: the workers that it keeps from the master.
        act: makes it happen and undoes it.
        waits: whether the run must say that it waits for workers.
        rate: of every link, bits a second.
        size: parameters.
        steps: after which the run ends by itself; without, it is ended when all are back.
        settled: step after which it happens.
        settings: keys of the run beside the usual ones.
    """

    name: str
    what: str
    hit: tuple[int, ...]
    act: Callable[[Site], Spell]
    waits: bool = False
    rate: float = FULL_RATE
    size: int = 1000
    steps: int | None = None
    settled: int = SETTLED
    settings: Mapping[str, Any] = field(default_factory=dict)


def cutting(workers: Sequence[int], seconds: float, directions: Sequence[Direction] = BOTH) -> Callable[[Site], Spell]:
    """The links of these workers are cut, in these directions as the workers see them."""

    def act(site: Site) -> Spell:
        for worker in workers:
            site.lab.cut(worker_host(worker), directions)
        begun = site.now()
        site.watch(seconds)
        for worker in workers:
            site.lab.mend(worker_host(worker))
        return Spell(begun, site.now())

    return act


def losing_connections(workers: Sequence[int]) -> Callable[[Site], Spell]:
    """A firewall forgets these workers' connections for gradients: they are dead, and new ones are not."""

    def act(site: Site) -> Spell:
        for worker in workers:
            site.lab.lose_connections(worker_host(worker), site.config.net.port + 1)
        now = site.now()
        return Spell(now, now)

    return act


def losing_address(seconds: float) -> Callable[[Site], Spell]:
    """The master's host loses its address and gets it back."""

    def act(site: Site) -> Spell:
        site.lab.take_address(MASTER)
        begun = site.now()
        site.watch(seconds)
        site.lab.give_address(MASTER)
        return Spell(begun, site.now())

    return act


def flapping(times: int, seconds: float) -> Callable[[Site], Spell]:
    """The master's link is down and up for so many seconds each, so many times."""

    def act(site: Site) -> Spell:
        begun = over = site.now()
        for _ in range(times):
            site.lab.cut(MASTER)
            site.watch(seconds)
            site.lab.mend(MASTER)
            over = site.now()
            site.watch(seconds)
        return Spell(begun, over)

    return act


def restarting(workers: Sequence[int], *, down: float, cut: float) -> Callable[[Site], Spell]:
    """The master is killed and started again ``down`` seconds later, while links are cut, for ``cut`` seconds more."""

    def act(site: Site) -> Spell:
        assert site.master is not None
        for worker in workers:
            site.lab.cut(worker_host(worker))
        site.master.send_signal(signal.SIGKILL)
        site.master.wait()
        begun = site.now()
        time.sleep(down)
        site.start_master("--resume", "auto")
        time.sleep(cut)
        for worker in workers:
            site.lab.mend(worker_host(worker))
        return Spell(begun, site.now())

    return act


def nothing(site: Site) -> Spell:
    """Links are what they are."""
    now = site.now()
    return Spell(now, now)


ALL = tuple(range(WORKERS))
TOO_MANY = tuple(range(STRAGGLERS + 1))
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("one", "1 worker cut off for 20 s", (0,), cutting([0], 20)),
    Scenario("s", "s workers cut off for 20 s", (0, 1), cutting([0, 1], 20)),
    Scenario("short", "s + 1 workers cut off for 8 s", TOO_MANY, cutting(TOO_MANY, 8), waits=True),
    Scenario("more", "s + 1 workers cut off for 20 s", TOO_MANY, cutting(TOO_MANY, 20), waits=True),
    Scenario("long", "s + 1 workers cut off for 2 min", TOO_MANY, cutting(TOO_MANY, 120), waits=True),
    Scenario("deaf", "nothing reaches s + 1 workers for 20 s", TOO_MANY, cutting(TOO_MANY, 20, ["to"]), waits=True),
    Scenario(
        "mute", "nothing comes from s + 1 workers for 20 s", TOO_MANY, cutting(TOO_MANY, 20, ["from"]), waits=True
    ),
    Scenario("forgotten", "s + 1 workers' connections for gradients die", TOO_MANY, losing_connections(TOO_MANY)),
    Scenario("flap", "the master's link down and up, 3 s each, 5 times", ALL, flapping(5, 3.0)),
    Scenario("address", "the master's address gone for 60 s", ALL, losing_address(60), waits=True),
    Scenario(
        "restart",
        "the master killed, resumed 3 s later; s + 1 workers cut off for 10 s more",
        ALL,
        restarting(TOO_MANY, down=3, cut=10),
        settled=30,
        settings={"checkpoint.every": 7},
    ),
    Scenario(
        "slow",
        "10 Mbit/s, a step's transfers take 10 s",
        (),
        nothing,
        rate=SLOW_RATE,
        size=250_000,
        steps=6,
        settled=0,
        settings={"scheme.name": "dgd"},
    ),
    Scenario(
        "slow-cut",
        "10 Mbit/s, 3 workers cut off for 20 s in the middle of a transfer",
        TOO_MANY,
        cutting(TOO_MANY, 20),
        waits=True,
        rate=SLOW_RATE,
        size=250_000,
        steps=8,
        settled=1,
        settings={"scheme.name": "dgd"},
    ),
)
