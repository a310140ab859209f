"""The other end of shared memory, for the tests: does what each line of its input says, ["name", arguments...].

It answers every line with one of its own: what came of it, or ["error", class, text].
"""

import contextlib
import json
import os
import resource
import sys
from typing import Any

from leased import FIRST_HALF, fill, shows

from pgczmq.net import memory
from pgczmq.net.memory import Block, Lease


class Other:
    """One block and the leases on it."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.leases: list[Lease] = []

    def open_to_read(self, process: int, descriptor: int, nbytes: int) -> None:
        self.block = Block.open_to_read(process, descriptor, nbytes)

    def open_to_write(self, process: int, descriptor: int, nbytes: int) -> None:
        self.block = Block.open_to_write(process, descriptor, nbytes)

    def lease(self, step: int) -> bool:
        lease = self.mine.lease(step)
        self.leases += [lease] if lease is not None else []
        return lease is not None

    def reads(self, step: int) -> bool:
        return shows(self.leases[-1].memory, step)

    def holds(self) -> list[bool]:
        return [lease.holds() for lease in self.leases]

    def release(self) -> None:
        """The oldest lease."""
        self.leases.pop(0).release()

    def try_to_write(self) -> bool:
        return self.mine.try_to_write()

    def wait_to_write(self) -> None:
        self.mine.wait_to_write()

    def fill(self, step: int) -> None:
        fill(self.mine.payload, step)

    def fill_half(self, step: int) -> None:
        fill(self.mine.payload, step, FIRST_HALF)

    def written(self, step: int) -> None:
        self.mine.written(step)

    def resize(self, nbytes: int) -> None:
        os.ftruncate(self.mine.descriptor, nbytes)

    def descriptor(self) -> int:
        return self.mine.descriptor

    def why_not_shared(self, process: int, descriptor: int, nonce: str) -> str:
        return memory.why_not_shared(process, descriptor, nonce)

    def why_not_here(self) -> str:
        """Where no descriptor is left."""
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
        return memory.why_not_here()

    def become(self, user: int) -> int:
        """Another user, for good."""
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        return os.getuid()

    @property
    def mine(self) -> Block:
        assert self.block is not None
        return self.block


def main() -> None:
    other = Other()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer: Any
        try:
            answer = getattr(other, name)(*arguments)
        except (OSError, ValueError) as error:
            answer = ["error", type(error).__name__, str(error)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
