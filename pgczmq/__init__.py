"""pgczmq: a light asyncio parameter server over ZeroMQ for workers that are late or vanish."""

from importlib.metadata import version

__version__ = version("pgczmq")
