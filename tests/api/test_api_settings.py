"""Settings as keywords: merged as the command line's are, with functions where the file names code."""

import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest

from pgczmq import config as config_module
from pgczmq.api.settings import Settings, name_of, resolved
from pgczmq.config import RunConfig, SchemeConfig
from pgczmq.errors import ConfigError

FILE = """
workers = 4
[task]
name = "digits-mlp"
args = { hidden = 8, dropout = 0.5 }
[scheme]
name = "gc-fr"
stragglers = 1
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def of(file: Path | None = None, where: Literal["here", "apart"] = "here", **given: Any) -> RunConfig:
    return resolved(file, given, where)


def test_the_keywords_are_the_keys_of_the_file() -> None:
    assert set(Settings.__annotations__) == set(RunConfig.model_fields)


def test_what_is_given_goes_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(FILE)
    config = of(file, steps=7, task={"args": {"hidden": 16}}, scheme={"name": "dgd"}, faults=[{"kind": "drop"}])
    assert (config.workers, config.steps, config.faults[0].kind) == (4, 7, "drop")
    assert config.task.args == {"hidden": 16, "dropout": 0.5}  # the others of a table stay
    assert config.scheme == SchemeConfig(name="dgd", stragglers=1)
    table = config_module.table_of(file, {"PGC_STEPS": "5", "PGC_WORKERS": "6"})
    assert (table["steps"], table["workers"]) == (5, 6)


def test_numbers_of_numpy_and_paths_are_taken_for_what_they_are() -> None:
    args = {"root": Path("data"), "width": np.int64(3), "rate": np.float32(0.5), "on": date(2026, 1, 1), "some": (1, 2)}
    config = of(workers=np.int64(6), scheme={"stragglers": np.int32(2)}, task={"args": args})
    assert (config.workers, config.scheme.stragglers) == (6, 2)
    assert config.task.args == {"root": "data", "width": 3, "rate": 0.5, "on": date(2026, 1, 1), "some": [1, 2]}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"workes": 3}, "there is no setting workes. The nearest is workers"),
        ({"scheme": {"stragler": 3}}, "there is no setting scheme.stragler. The nearest is scheme.stragglers"),
        ({"scheme": "dgd"}, "scheme is a table with keys of its own: got 'dgd'. Write scheme={'name': 'dgd'}."),
        ({"task": resolved}, "Write task={'name': resolved}."),
        ({"file": {"steps": 3}}, "settings are keywords: got dict. Write steps=3, or **"),
        ({"workers": 2.5}, "workers"),
        ({"task": {"args": {"data": object()}}}, "got task.args.data = object. Give it as numbers, texts"),
        ({"task": {"name": lambda seed: None}}, "at the top level of its module, under its own name"),
        ({"task": {"name": np.array([1])}}, "got task.name = ndarray"),
    ],
)
def test_what_cannot_be_is_said(given: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        of(**given)
    assert sentence in str(raised.value)


def test_functions_and_classes_have_the_name_under_which_they_are_imported() -> None:
    assert of(task={"name": resolved}).task.name == "pgczmq.api.settings:resolved"
    assert name_of(Settings, "delay.model", "apart") == "pgczmq.api.settings:Settings"

    def inner() -> None: ...

    with pytest.raises(ConfigError, match=r"scheme.name = .*<locals>.inner of test_api_settings. Move it there"):
        name_of(inner, "scheme.name", "here")
    with pytest.raises(ConfigError, match=r"scheme.name = '?functools.partial"):
        import functools

        name_of(functools.partial(resolved, None), "scheme.name", "here")


class Main(ModuleType):
    """A ``__main__`` that is something else than pytest's."""

    def __init__(self, file: str | None, spec: str | None) -> None:
        super().__init__("__main__")
        self.__spec__ = None if spec is None else type(sys.__spec__)(spec, None)
        if file is not None:
            self.__file__ = file

        def spirals() -> None: ...

        spirals.__module__, spirals.__qualname__ = "__main__", "spirals"
        self.spirals = spirals


@pytest.mark.parametrize(
    ("file", "spec", "name"),
    [
        ("/home/me/train_it.py", None, "train_it:spirals"),
        ("/home/me/package/part.py", "package.part", "package.part:spirals"),
        ("/home/me/package/__main__.py", "package.__main__", "package.__main__:spirals"),
        (None, None, ""),
        ("<stdin>", None, ""),
        ("/home/me/package/__main__.py", "__main__", ""),
    ],
    ids=["script", "module", "package", "notebook", "piped", "directory"],
)
def test_a_function_of_the_program_itself(
    file: str | None, spec: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = Main(file, spec)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert name_of(main.spirals, "task.name", "here") == "__main__:spirals"
    if name:
        assert name_of(main.spirals, "task.name", "apart") == name
        return
    with pytest.raises(ConfigError, match=r"%%writefile my_spirals.py .* pgczmq.simulate takes it as it is"):
        name_of(main.spirals, "task.name", "apart")
