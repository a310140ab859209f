"""Names of a worker's lives: 16 hexadecimal digits, the first 8 the same in all lives of one process."""

import uuid

_PROCESS = 8
_LIFE = 16


def new_process() -> str:
    """What the lives of one process have in common; nobody else is told of it."""
    return uuid.uuid4().hex[:_PROCESS]


def new_life(process: str) -> str:
    """An incarnation."""
    return process + uuid.uuid4().hex[: _LIFE - _PROCESS]


def process_of(incarnation: str) -> str:
    """Whose life it is; empty for a name that is not of this kind."""
    return incarnation[:_PROCESS] if len(incarnation) == _LIFE else ""
