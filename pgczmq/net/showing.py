"""Pictures of a run for whoever watches it from elsewhere, at no cost while nobody does.

A picture is made when the master has just published a step and has nothing to do but wait; one that cannot be sent at
once is dropped. So viewers, however many there are and whatever becomes of them, take nothing from the run.
"""

import asyncio
import logging

from pgczmq.net.hub import Hub
from pgczmq.picture import Source

log = logging.getLogger("pgczmq.master")

EVERY_SECONDS = 0.5
"""So often a picture is due. It waits for a step to be published, but not for longer than that."""


class Showing:
    """Sends pictures as long as ``show`` runs and somebody subscribes.

    Args:
        hub: sends them, and knows who watches.
        source: of the pictures; called on the event loop.
    """

    def __init__(self, hub: Hub, source: Source) -> None:
        self._hub = hub
        self._source = source
        self._due = False

    async def show(self) -> None:
        """Again and again, for ever."""
        while True:
            await self._hub.watched.wait()
            self._due = True
            await asyncio.sleep(EVERY_SECONDS)
            self._send_if_due()

    def published(self) -> None:
        """A step has just been published: there is nothing to do until its first answer."""
        if self._due:
            asyncio.get_running_loop().call_soon(self._send_if_due)

    def _send_if_due(self) -> None:
        if not self._due:
            return
        self._due = False
        try:
            self._hub.show(self._source())
        except Exception:  # it is no reason to end a run
            log.exception("viewers miss a picture of this run")
