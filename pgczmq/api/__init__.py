"""The program from Python, for scripts and notebooks: ``train``, ``simulate`` and ``compare``.

    import pgczmq

    run = pgczmq.train("digits.toml", steps=200, scheme={"name": "pgc-cr", "stragglers": 2})
    print(run.result.loss, run.model())

Settings are those of the TOML file, under the same names: a file, and what is to be another than there as keywords,
with a mapping for a table. See ``Settings``. ``PGC_*`` in the environment counts as on the command line. What goes
wrong is raised, as the sentence that the command prints: ``pgczmq.PgcError``, and ``ConfigError`` below it for whatever
the caller can put right.
"""

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from pgczmq.api.apart import apart, refuse_inside
from pgczmq.api.run import Interrupted, Run, finished
from pgczmq.api.settings import Settings, resolved
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.view.live.screen import open_view
from pgczmq.view.place import console, mode_here

if TYPE_CHECKING:
    from pgczmq.api.comparison import Comparison
else:

    def __getattr__(name: str) -> object:
        """Comparisons are imported when somebody asks for them."""
        if name == "Comparison":
            from pgczmq.api import comparison

            return comparison.Comparison
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Comparison", "Interrupted", "Run", "Settings", "compare", "simulate", "train"]

_simulating = threading.Lock()


def train(
    file: str | Path | None = None,
    /,
    *,
    root: str | Path = "runs",
    resume: str | Path = "never",
    **settings: Unpack[Settings],
) -> Run:
    """Train on worker processes of this machine, as ``pgc local`` does.

        run = pgczmq.train(workers=3, steps=400, task={"name": my_model.spirals, "batch_size": 64})

    Everything happens in other processes: this one only shows it. They import the task's file anew, as it is by then.
    Ctrl+C is heard where Python has it heard, on the main thread; a call on another one ends when the run does.

    Args:
        file: the run as TOML; the defaults without one.
        root: where the run directory is made.
        resume: "never" begins a new run, the path of a run directory or a checkpoint goes on with that, "auto" with
            whatever was interrupted.
        settings: what is to be another than in the file.

    Returns:
        The run, when all its steps are done.

    Raises:
        ConfigError: something about the settings or the task does not work.
        Interrupted: Ctrl+C, or a notebook's stop button: the run was saved, and can be gone on with. A second time: a
            KeyboardInterrupt at once.
        ClusterError: too few workers were left.
    """
    refuse_inside("train")
    config = resolved(file, settings, "apart")
    arguments = {"table": _set(config), "root": Path(root), "resume": str(resume)}
    with open_view(mode_here(config.ui.mode), console()) as sink:
        result = apart("train", arguments, lambda kind, record: sink(record))
    return finished(result)


def simulate(
    file: str | Path | None = None,
    /,
    *,
    engine: Literal["sim", "timing"] = "sim",
    root: str | Path = "runs",
    resume: str | Path = "never",
    **settings: Unpack[Settings],
) -> Run:
    """Do in virtual time, and in this process, what ``train`` does: two calls give the same bytes, as ``pgc sim``.

        run = pgczmq.simulate("digits.toml", delay={"model": "exponential", "mean": 1.0})
        run.result.virtual_seconds

    A task may be a function of the notebook itself. torch's threads and the global random streams are left as they
    were. Only one simulation at a time: another thread's waits.

    Args:
        file, root, resume, settings: as for ``train``.
        engine: "timing" leaves the gradients out: only who answers when is simulated, and losses are None.

    Raises:
        ConfigError: something about the settings or the task does not work.
        Interrupted: as for ``train``.
    """
    refuse_inside("simulate")
    config = resolved(file, settings, "here")
    from pgczmq.api import here
    from pgczmq.app import simulate as app

    app.check(config)
    with _simulating, here.as_it_was(), open_view(mode_here(config.ui.mode), console()) as sink:
        model = None if engine == "timing" else app.model_of(config)
        result = app.run(config, model=model, sink=sink, root=Path(root), resume=str(resume))
    return finished(result)


def compare(
    file: str | Path | None = None,
    /,
    *,
    schemes: Sequence[str],
    stragglers: Sequence[int] = (1,),
    seeds: int = 5,
    engine: Literal["sim", "timing", "local"] = "sim",
    target: float = 0.5,
    json: str | Path | None = None,
    root: str | Path = "runs",
    **settings: Unpack[Settings],
) -> "Comparison":
    """Compare schemes over several seeds, as ``pgc compare`` does: as many runs side by side as there are cores.

        comparison = pgczmq.compare("digits.toml", schemes=["dgd", "pgc-cr"], stragglers=[1, 2])
        print(comparison)
        comparison.plot("schemes.png")

    Args:
        file, settings: as for ``train``; what all runs have in common.
        schemes: names, as in ``scheme.name``.
        stragglers: each scheme with each of these.
        seeds: runs of each, from seeds that count up.
        engine: virtual time ("sim"), the same without gradients ("timing"), or real processes, one run after the other
            ("local").
        target: the loss whose steps and seconds are counted.
        json: file for all figures; interrupted, the same call goes on from what is kept beside it.
        root: where real runs make their directories.

    Raises:
        ConfigError: something about the settings, the schemes or the task does not work.
        PgcError: a real run failed.
        KeyboardInterrupt: Ctrl+C; says how many runs were finished, and where they are kept.
    """
    refuse_inside("compare")
    if not math.isfinite(target):
        raise ConfigError(f"target is a loss that can be reached, a number: got {target:g}.")
    if seeds < 1 or not schemes or not stragglers:
        raise ConfigError(
            "a comparison has at least one scheme, one number of stragglers and one seed: got "
            f"{len(schemes)}, {len(stragglers)} and {seeds}."
        )
    config = resolved(file, settings, "apart")
    from pgczmq.api.comparison import Watch, part_of

    part = None if json is None else part_of(Path(json))
    arguments = {
        "table": _set(config),
        "schemes": list(schemes),
        "stragglers": list(stragglers),
        "seeds": seeds,
        "engine": engine,
        "target": target,
        "part": part,
        "root": Path(root),
    }
    with Watch(config.ui.mode) as watch:
        try:
            found: Comparison = apart("compare", arguments, watch.see)
        except KeyboardInterrupt:
            kept = "Nothing is kept without json=." if part is None else f"The same call goes on from {part}."
            raise KeyboardInterrupt(f"{watch.finished} of {watch.total} runs were finished. {kept}") from None
    if json is not None:
        found.save(Path(json))
    return found


def _set(config: RunConfig) -> dict[str, Any]:
    """What differs from the defaults because somebody said so: it makes a difference for ``net.port``, for example."""
    return config.model_dump(exclude_unset=True)
