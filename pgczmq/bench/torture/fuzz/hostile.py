"""What strangers say: real messages of the run spoilt in every way, real ones again, and things that are no messages.

Nothing that is made here may count: what would still be right comes over another connection than its worker's.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgczmq.bench.torture.fuzz.packing import Raw, Value, packed
from pgczmq.net import wire

Frames = list[bytes]

_WRONG: list[Value] = [
    None, True, -1, 2**63, 2**64 - 1, -(2**63), 1.5, math.nan, math.inf, -math.inf, 1e308, "", "x" * 300, "\x1b[2J\n\0",
    b"", b"\xff" * 70, [], [[]], [1, "a", None], {}, {"a": {"b": [1]}},
    Raw(b"\xd4\x05x"), Raw(b"\xc1"), Raw(b"\xd6\xff\0\0\0\0"), Raw(b"\xdb\xff\xff\xff\xff"),
    Raw(b"\xdd\xff\xff\xff\xff"), Raw(b"\xdf\xff\xff\xff\xff"), Raw(b"\xda\0\x02\xff\xfe"),
]  # fmt: skip
_NUMBERS: list[Value] = [0, -1, 1, 255, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1e300, -1e300, 5e-324]
_DEPTHS = (10, 500, 1100, 20_000)


class Hostile:
    """A source of hostile messages for one run.

    Args:
        seed: of everything that is drawn.
        control, gradients: real messages of the run's to each socket.
        workers: of the run.
    """

    def __init__(self, seed: int, *, control: Sequence[Frames], gradients: Sequence[Frames], workers: int) -> None:
        self._draw = random.Random(seed)
        self._heard = {"control": list(control), "gradients": list(gradients)}
        self._workers = workers
        self._life = "x"
        self._kinds: Mapping[str, Callable[[str], Frames]] = {
            "bits flipped": self._flipped,
            "cut": self._cut,
            "frames added, lost and swapped": self._spliced,
            "values of another type": self._mistyped,
            "extreme numbers": self._extreme,
            "deep and long": self._deep,
            "repeated": self._repeated,
            "of another run or worker": self._strange,
            "on the wrong socket": self._misplaced,
            "of another version": self._other_version,
            "hello": self._hello,
            "random bytes": self._random,
        }

    @property
    def kinds(self) -> list[str]:
        """What there is."""
        return list(self._kinds)

    def message(self, socket: str) -> tuple[str, Frames]:
        """The next message for "control" or "gradients", and its kind."""
        kind = self._draw.choice(self.kinds)
        return kind, self._kinds[kind](socket)

    def identity(self) -> bytes:
        """What the next connection calls itself, never what another one does; hellos that follow are of its life."""
        self._life = self._draw.randbytes(8).hex()
        if self._draw.random() < 0.1:
            return self._draw.randbytes(self._draw.randint(8, 255))
        number = self._draw.choice(("?:", "0:", "3:", "99999999999999999999:", "", "\x1b[31m:", "ä" * 100 + ":"))
        return f"{number}{self._life}".encode()

    # ------------------------------------------------------------ each kind

    def _real(self, socket: str) -> Frames:
        return list(self._draw.choice(self._heard[socket]))

    def _table(self, socket: str) -> tuple[dict[str, Any], Frames]:
        header, *payload = self._real(socket)
        return dict(wire.unpack(header)), payload

    def _flipped(self, socket: str) -> Frames:
        frames = self._real(socket)
        header = bytearray(frames[0])
        for _ in range(self._draw.choice((1, 1, 2, 8))):
            header[self._draw.randrange(len(header))] ^= 1 << self._draw.randrange(8)
        return [bytes(header), *frames[1:]]

    def _cut(self, socket: str) -> Frames:
        frames = self._real(socket)
        place = self._draw.randrange(len(frames))
        frames[place] = frames[place][: self._draw.randrange(len(frames[place]) or 1)]
        return frames

    def _spliced(self, socket: str) -> Frames:
        frames = self._real(socket)
        other = self._real(self._draw.choice(("control", "gradients")))
        match self._draw.randrange(5):
            case 0:
                return frames + other
            case 1:
                return frames[1:] or [b""]
            case 2:
                return frames[::-1]
            case 3:
                return frames + [b""] * self._draw.choice((1, 10, 3000))
            case _:
                half = len(other[0]) // 2
                return [frames[0][: len(frames[0]) // 2] + other[0][half:], *frames[1:]]

    def _mistyped(self, socket: str) -> Frames:
        table, payload = self._table(socket)
        for _ in range(self._draw.choice((1, 1, 3))):
            table[self._draw.choice([*table, "more"])] = self._draw.choice(_WRONG)
        return [packed(table), *payload]

    def _extreme(self, socket: str) -> Frames:
        table, payload = self._table(socket)
        numeric = [key for key, value in table.items() if isinstance(value, int | float | list)]
        key = self._draw.choice(numeric or ["v"])
        number = self._draw.choice(_NUMBERS)
        table[key] = [number] * self._draw.choice((1, 3, 2000)) if isinstance(table[key], list) else number
        return [packed(table), *payload]

    def _deep(self, socket: str) -> Frames:
        table, payload = self._table(socket)
        depth = self._draw.choice(_DEPTHS)
        opening = self._draw.choice((b"\x91", b"\x81\xa1a", b"\xdd\0\0\0\x01"))
        match self._draw.randrange(4):
            case 0:
                return [opening * depth + b"\xc0", *payload]
            case 1:
                table[self._draw.choice([*table])] = Raw(opening * depth + b"\xc0")
            case 2:
                table |= {f"key{number}": number for number in range(self._draw.choice((10, 2000)))}
            case _:
                table[self._draw.choice([*table])] = [0] * self._draw.choice((100, 6000))
        return [packed(table), *payload]

    def _repeated(self, socket: str) -> Frames:
        return self._real(socket)

    def _strange(self, socket: str) -> Frames:
        table, payload = self._table(socket)
        table[self._draw.choice(("run", "master", "incarnation"))] = self._draw.randbytes(8).hex()
        if self._draw.random() < 0.5:
            table["worker"] = self._draw.randrange(-1, self._workers + 2)
        if "step" in table and self._draw.random() < 0.5:
            table["step"] = self._draw.choice((0, 1, 10**6, 2**63))
        return [packed(table), *payload]

    def _misplaced(self, socket: str) -> Frames:
        return self._real("gradients" if socket == "control" else "control")

    def _other_version(self, socket: str) -> Frames:
        table, payload = self._table(socket)
        table["v"] = self._draw.choice((0, 1, wire.PROTOCOL - 1, wire.PROTOCOL + 1, 2**40, "4", None))
        return [packed(table), *payload]

    def _hello(self, socket: str) -> Frames:
        """Right in itself, and in vain: each number has a worker that lives."""
        number = self._draw.choice((None, *range(self._workers), -1, self._workers, 10**12))
        run = self._draw.choice((None, None, "another"))
        hello = wire.Hello(worker=number, incarnation=self._life, run=run, package="0", host="\x1b[2Jhost\n", pid=1)
        return [wire.pack(hello)]

    def _random(self, socket: str) -> Frames:
        return [
            self._draw.randbytes(self._draw.choice((0, 1, 5, 100, 5000)))
            for _ in range(self._draw.choice((1, 1, 2, 4)))
        ]
