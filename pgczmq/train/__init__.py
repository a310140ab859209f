"""The only home of torch: the user's task, gradients on the workers, the optimizer on the master.

Nothing is imported here, so that ``pgczmq.train.<module>`` costs what that module needs and no more.

``pgczmq.train(...)`` is ``pgczmq.api.train``: a master and its workers on this machine. Once any module below has been
imported, Python makes ``pgczmq.train`` mean this package, whatever the name meant before; so the package itself can be
called.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Unpack

    from pgczmq.api import Run, Settings


class _Callable(ModuleType):
    """A module that is called like ``pgczmq.api.train``."""

    def __call__(
        self,
        file: str | Path | None = None,
        /,
        *,
        root: str | Path = "runs",
        resume: str | Path = "never",
        **settings: "Unpack[Settings]",
    ) -> "Run":
        """Train on worker processes of this machine; see ``pgczmq.api.train``."""
        from pgczmq.api import train

        return train(file, root=root, resume=resume, **settings)


sys.modules[__name__].__class__ = _Callable
