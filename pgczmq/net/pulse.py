"""The master's own clock: ticks for deadlines, an alarm for the next one, heartbeats and beacons for the workers."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from pgczmq.core import events
from pgczmq.core.engine import Engine
from pgczmq.net import wire
from pgczmq.net.hub import Hub

HELD_UP_SECONDS = 0.05
"""A timer that comes later than this was held up by something."""
TICKS_A_BEAT = 4


class Pulse:
    """Beats as long as ``beat`` runs.

    Args:
        engine: is told the time.
        hub: sends.
        heartbeat: seconds between beats.
        now: seconds on the run's clock.
        feed: hands the engine an event.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        heartbeat: float,
        *,
        now: Callable[[], float],
        feed: Callable[[events.Event], None],
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._heartbeat = heartbeat
        self._now = now
        self._feed = feed
        self._broadcast_at = math.inf  # the open step was published
        self._alarm: asyncio.TimerHandle | None = None
        self._tick_due = self._alarm_due = math.inf
        self._ticked_at = 0.0

    async def beat(self) -> None:
        """Tick, call whoever does not hear the broadcast yet, and show everybody that the master lives."""
        tick = 0
        while True:
            self._tick()
            if self._hub.has_unready():
                self._hub.publish(wire.Beacon(**self._hub.mine))
            if tick % TICKS_A_BEAT == 0:
                self._send_beats()
            tick += 1
            await asyncio.sleep(self._heartbeat / TICKS_A_BEAT)

    def set_alarm(self) -> None:
        """For the engine's deadline, which may be over before the next beat."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due = self._engine.deadline
        if due < math.inf:
            self._alarm = asyncio.get_running_loop().call_later(due - self._now(), self._tick)

    def broadcast(self, at: float) -> None:
        """The open step was published: whoever lacks it in a heartbeat's time has lost it."""
        self._broadcast_at = at

    def send_beat(self, worker: int, incarnation: str) -> None:
        """One worker's heartbeat from the master, now."""
        beat = wire.Beat(
            ready=not self._hub.is_unready(incarnation),
            open_step=self._engine.open_step,
            arrived=list(self._engine.arrived),
            **verdict(self._engine.outcome),
            **self._hub.mine,
        )
        if not self._hub.send_control(incarnation, beat):
            self._feed(events.Left(worker, incarnation, "can no longer be reached", self._now()))

    def close(self) -> None:
        """No alarm comes any more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _tick(self) -> None:
        """When this comes late, the loop was blocked, or the process stopped: nobody was listened to.

        For how long before it was due nobody knows; where every tick is a little late, time must not stand still.
        """
        now = self._now()
        late = now - min(self._tick_due, self._alarm_due)
        deaf = min(now - self._ticked_at, 4 * late) if late > HELD_UP_SECONDS else 0.0
        self._ticked_at, self._tick_due = now, now + self._heartbeat / TICKS_A_BEAT
        self._feed(events.Tick(now, deaf))
        self.set_alarm()

    def _send_beats(self) -> None:
        if self._engine.phase == "open" and self._now() - self._broadcast_at > self._heartbeat:
            self._hub.publish(wire.Beacon(step=self._engine.open_step, **self._hub.mine))
        elif self._engine.phase == "starting":  # only who sends hears of subscribers that come and go
            self._hub.publish(wire.Beacon(**self._hub.mine))
        for worker, incarnation in self._hub.admitted():
            self.send_beat(worker, incarnation)


def verdict(outcome: events.Outcome) -> dict[str, Any]:
    """What became of a closed step's messages, as headers tell it."""
    return {
        "closed_step": outcome.step,
        "used": list(outcome.used),
        "spare": list(outcome.spare),
        "late": [list(pair) for pair in outcome.late],
    }
