"""A process that writes gradients into a block of the test's: ``lease_writer.py SOCKET MASTER BLOCK NBYTES MUTANT``.

Each message that it takes is [step]. It says ["sealed", step] when that step's payload is in the block.
"""

import sys

from crowd import Channel
from leased import FIRST_HALF, SECOND_HALF, fill

from pgczmq.net.memory import NOTHING, Block
from pgczmq.net.payload import BlockOut


def wait_for_nobody() -> None:
    def take(self: Block) -> None:
        self.stamp = NOTHING

    Block.wait_to_write = take  # type: ignore[method-assign]


def leave_the_stamp() -> None:
    wait = Block.wait_to_write

    def take(self: Block) -> None:
        stamp = self.stamp
        wait(self)
        self.stamp = stamp

    Block.wait_to_write = take  # type: ignore[method-assign]


MUTANTS = {"": lambda: None, "waits for nobody": wait_for_nobody, "leaves the stamp": leave_the_stamp}


def main(descriptor: str, master: str, block: str, nbytes: str, mutant: str) -> None:
    MUTANTS[mutant]()
    channel = Channel(int(descriptor))
    out = BlockOut(Block.open_to_write(int(master), int(block), int(nbytes)), int(block))
    for (step,) in channel.newest():
        channel.pause("waiting")
        room = out.room()
        channel.pause("taken")
        fill(room, step, FIRST_HALF)
        channel.pause("writing")
        fill(room, step, SECOND_HALF)
        channel.pause("written")
        out.seal(step)
        channel.pause("sealed")
        channel.say("sealed", step)


if __name__ == "__main__":
    main(*sys.argv[1:])
