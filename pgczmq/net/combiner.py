"""What the master computes beside its event loop: gradients in, the next version of the parameters out.

Arrivals that are sure to have one weight are added up while others are waited for.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pgczmq.core import events
from pgczmq.core.policies import Plan
from pgczmq.core.values import value
from pgczmq.net.beside import Beside
from pgczmq.net.compute import Buffer, MasterCompute, Memory, Snapshot, Update
from pgczmq.net.exchange import Exchange, Version
from pgczmq.net.payload import Lease, Way
from pgczmq.net.reception import Arrival

FOLD_TOGETHER = 4
"""Arrivals that are added up in one pass while others are waited for: fewer would cost more passes over the sum."""
QUIET_SECONDS = 0.005
"""Nothing is added up while one arrival follows the other: the last one would only wait for it."""


@value
class _Held:
    """A message that counts, as it is combined."""

    lease: Lease
    gradient: Memory
    buffers: Memory


@value
class Spent:
    """Seconds that an update took; as in ``runlog.StepRecord``."""

    combining: float
    updating: float
    writing: float


class Combiner:
    """The messages of the open step, and the parameters that come of them.

    Args:
        compute: holds the parameters.
        exchange: knows payloads.
        failed: told when computing fails.
        wanted: the ways that payloads of workers go that are there now.
        updates: that are in the parameters already, when a run goes on.

    Attributes:
        version: the parameters of the open step as they are sent; of step -1 before there is one.
        held: messages that count for the open step, until it is applied: a culprit may have to be looked for.
        held_bytes: the size of their payloads.
    """

    def __init__(
        self,
        compute: MasterCompute,
        exchange: Exchange,
        failed: Callable[[BaseException], None],
        wanted: Callable[[], frozenset[Way]],
        *,
        updates: int = 0,
    ) -> None:
        self._wanted = wanted
        self._compute = compute
        self._exchange = exchange
        self._beside = Beside(failed)
        self._unfolded: list[tuple[int, Buffer]] = []
        self._folding: asyncio.TimerHandle | None = None
        self._quiet_at = 0.0  # on the loop's clock: nothing has come for long enough then
        self._updates = updates  # in the parameters; the compute thread's
        self.version = Version(-1, {})
        self.held: dict[int, _Held] = {}
        self.held_bytes = 0

    def close(self) -> None:
        """Nothing more is computed than what has begun; senders may have their memory back."""
        self._put_off()
        self._beside.close()
        self._release_all()

    def capture(self, capture: Callable[[], Any]) -> asyncio.Future[Any]:
        """What ``capture`` takes of the parameters before anything that is asked for later changes them."""
        return self._beside.start("capture", capture)

    def snapshot(self) -> asyncio.Future[Snapshot]:
        """The parameters as they are now, or after the update that is under way."""
        return self._beside.start("snapshot", self._compute.snapshot)

    async def add_ways(self, ways: frozenset[Way]) -> None:
        """Write the open step's parameters also for workers whose payloads go these ways."""
        version = self.version

        def write() -> None:
            if version.step == self._updates:  # else the parameters have moved on, and with them the version
                self._exchange.write(version, ways)

        await self._beside.start("write", write)

    async def begin(self) -> None:
        """Write the parameters as they are at first, now that it is known which ways they go."""
        self.version = Version(self._updates, {})
        await self.add_ways(self._wanted())

    def hold(self, arrival: Arrival) -> None:
        """The message counts for the open step."""
        assert arrival.payload is not None
        self.held[arrival.header.worker] = _Held(arrival.payload, *self._exchange.split(arrival.payload))
        self.held_bytes += len(arrival.payload.memory)

    def fold(self, step: int, worker: int) -> None:
        """The weight of this message, which is held, is that of all others so told of: they can be added up."""
        self._unfolded.append((worker, self.held[worker].gradient))
        if len(self._unfolded) >= FOLD_TOGETHER:
            loop = asyncio.get_running_loop()
            self._quiet_at = loop.time() + QUIET_SECONDS
            if self._folding is None:
                self._folding = loop.call_at(self._quiet_at, self._fold_if_quiet, step)

    def _put_off(self) -> None:
        if self._folding is not None:
            self._folding.cancel()
            self._folding = None

    def _fold_if_quiet(self, step: int) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._quiet_at:
            self._folding = loop.call_at(self._quiet_at, self._fold_if_quiet, step)
            return
        batch, self._unfolded, self._folding = self._unfolded, [], None
        self._beside.call("fold", _nothing, self._compute.fold, step, batch)

    def apply(self, command: events.Apply, then: Callable[[Update, Spent], None]) -> None:
        """Combine what is held, update the parameters and write the next version; or hold all but the culprits."""
        self._put_off()
        messages = [
            (worker, weight, self.held[worker].gradient, self.held[worker].buffers)
            for worker, weight in zip(command.weights.workers, command.weights.values, strict=True)
            if weight != 0.0
        ]
        plan = Plan(command.closed.k, command.closed.batch_fraction)
        folds, self._unfolded = bool(self._unfolded), []  # they are combined with the others
        version, ways = Version(command.step + 1, {}), self._wanted()

        def update() -> tuple[Update, Spent]:
            begun = time.perf_counter()
            if folds:
                self._compute.fold(command.step, [])
            made = self._compute.apply(command.step, messages, plan)
            applied = time.perf_counter()
            if made.finite:
                self._updates = version.step
                self._exchange.write(version, ways)
            updating = applied - begun - made.combining
            return made, Spent(made.combining, updating, time.perf_counter() - applied)

        def updated(result: tuple[Update, Spent]) -> None:
            made, spent = result
            if made.finite:
                self.version = version
                self._release_all()
            for worker in made.culprits:
                culprit = self.held.pop(worker).lease
                self.held_bytes -= len(culprit.memory)
                culprit.release()
            then(made, spent)

        self._beside.call("update", updated, update)

    def _release_all(self) -> None:
        held, self.held, self.held_bytes = self.held, {}, 0
        for message in held.values():
            message.lease.release()


def _nothing(_: None) -> None:
    """There is nothing to do then."""
