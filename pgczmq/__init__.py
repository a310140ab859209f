"""pgczmq: a light asyncio parameter server over ZeroMQ for workers that are late or vanish.

From Python: ``train`` does what ``pgc local`` does, ``simulate`` what ``pgc sim`` does, and ``compare`` what
``pgc compare`` does; see ``pgczmq.api``. Everything here is imported when it is first asked for.
"""

TYPE_CHECKING = False  # as typing has it, whose import is long enough for a Ctrl+C to end in a traceback

if TYPE_CHECKING:
    from pgczmq.api import Comparison, Interrupted, Run, compare, simulate, train
    from pgczmq.errors import PgcError
    from pgczmq.train.task import Task

    __version__: str

__all__ = ["Comparison", "Interrupted", "PgcError", "Run", "Task", "__version__", "compare", "simulate", "train"]

if not TYPE_CHECKING:  # a type checker would take it as leave to ask for anything
    # ``train`` is the package of that name, which is callable: see there.
    _HOMES = {
        "Comparison": "pgczmq.api",
        "Interrupted": "pgczmq.api",
        "PgcError": "pgczmq.errors",
        "Run": "pgczmq.api",
        "Task": "pgczmq.train.task",
        "compare": "pgczmq.api",
        "simulate": "pgczmq.api",
    }

    def __getattr__(name):
        from importlib import import_module

        if name == "__version__":
            return import_module("importlib.metadata").version("pgczmq")
        if name == "train":
            return import_module("pgczmq.train")
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'pgczmq' has no attribute {name!r}")

    def __dir__():
        return __all__
