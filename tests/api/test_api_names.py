"""``import pgczmq``: what it costs, and that ``pgczmq.train`` is a function and a package whoever comes first."""

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import pgczmq
from pgczmq import api

USER = """
import pgczmq
from pgczmq import Task
from pgczmq.train.data import ArraySamples


def mine() -> Task:
    raise NotImplementedError


def good(samples: ArraySamples) -> float | None:
    run: pgczmq.Run = pgczmq.train("digits.toml", steps=3, scheme={"name": "dgd"}, task={"name": mine})
    same: pgczmq.Run = pgczmq.simulate(engine="timing", root="elsewhere")
    study: pgczmq.Comparison = pgczmq.compare(schemes=["dgd"], stragglers=[1])
    print(run.steps[0].loss, same.latencies[0].compute, study.rows[0].seed, run.state_dict()["weight"].shape)
    print(pgczmq.__version__)
    return run.result.loss


pgczmq.train(step=3)
pgczmq.simulate(engine="local")
pgczmq.rain()
"""


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_it_imports_nothing_else() -> None:
    heavy = ["torch", "zmq", "numpy", "pydantic", "rich", "asyncio", "logging", "importlib.metadata", "pgczmq.api"]
    assert python(f"import sys, pgczmq; print([name for name in {heavy} if name in sys.modules])") == "[]\n"


@pytest.mark.parametrize(
    "program",
    [
        "import pgczmq; first = pgczmq.train; from pgczmq.train import gates; second = pgczmq.train",
        "import pgczmq.train.gates; first = second = pgczmq.train",
        "from pgczmq.train.gates import Gates; import pgczmq; from pgczmq import train as first; second = pgczmq.train",
        "from pgczmq import train as first; import pgczmq.train.gates; second = pgczmq.train",
    ],
    ids=["called first", "imported first", "from it first", "taken from the package"],
)
def test_train_is_callable_and_a_package_in_any_order(program: str) -> None:
    """Called wrongly: it shall not train here."""
    call = "\nfor train in (first, second):\n    try:\n        train(nonsense=1)\n    except pgczmq.PgcError as error:"
    said = python(f"{program}{call}\n        print(error)\nprint(pgczmq.train.gates.Gates.__name__)")
    assert said.startswith("there is no setting nonsense") and said.count("nonsense") == 2 and said.endswith("Gates\n")


def test_it_has_the_signature_of_the_function() -> None:
    package, function = (inspect.signature(called).parameters for called in (pgczmq.train, api.train))
    assert list(package) == list(function)
    for name, parameter in package.items():
        assert (parameter.kind, parameter.default) == (function[name].kind, function[name].default), name


def test_everything_named_is_there() -> None:
    assert all(getattr(pgczmq, name) is not None for name in pgczmq.__all__)
    assert dir(pgczmq) == pgczmq.__all__
    assert pgczmq.__version__ == version("pgczmq")
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        pgczmq.trian  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        api.trian  # type: ignore[attr-defined]  # noqa: B018


def test_a_type_checker_knows_it(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    root = Path(pgczmq.__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "user.py")]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280).stdout
    errors = [line for line in said.splitlines() if "error:" in line]
    assert len(errors) == 3, said
    assert 'Unexpected keyword argument "step" for "train"' in errors[0]
    assert "incompatible type \"Literal['local']\"" in errors[1]
    assert 'Module has no attribute "rain"' in errors[2]
