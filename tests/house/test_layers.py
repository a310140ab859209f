"""The house rules of design.md section 2, over the syntax trees: imports go downward, each library has one home."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "pgczmq"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each layer may import of the others; itself always.
MAY_IMPORT = {
    "errors": set(),
    "extensions": {"errors"},
    "core": {"errors"},
    "config": {"errors", "core"},
    "described": {"errors", "config"},
    "runlog": {"errors", "core"},
    "picture": {"core", "runlog"},
    "gather": {"picture", "runlog"},
    "checkpoints": {"errors"},
    "recorder": {"errors", "runlog"},
    "rewind": {"errors", "runlog"},
    "rundirs": {"errors", "runlog", "rewind"},
    "train": {"errors", "extensions", "core", "config", "runlog"},
    "net": {"errors", "core", "config", "runlog", "picture"},
    "sim": {"errors", "core", "config", "runlog", "train"},
    "view": {"errors", "runlog", "picture", "gather", "rundirs"},
    "app": {
        "errors",
        "core",
        "config",
        "described",
        "extensions",
        "runlog",
        "picture",
        "gather",
        "checkpoints",
        "recorder",
        "rewind",
        "train",
        "net",
        "sim",
    },
    "bench": {"errors", "extensions", "core", "config", "runlog", "train", "net", "sim", "app"},
    "api": {"errors", "config", "runlog", "rundirs", "checkpoints", "train", "view", "app", "bench"},
    "cli": {
        "api",
        "app",
        "bench",
        "config",
        "core",
        "described",
        "errors",
        "net",
        "picture",
        "rundirs",
        "runlog",
        "train",
        "view",
    },
    "start": {"cli"},
    "": {"errors", "train", "api"},  # pgczmq/__init__.py: names that are imported when they are asked for
}
# pgczmq.train is a package and, called, the API's function: see there.
UPWARD = {("train/__init__.py", "pgczmq.api")}
HOMES = {
    "torch": {"train", "app", "api"},  # app and api only inside functions
    "torchvision": {"train", "app"},
    "sklearn": {"train"},
    "zmq": {"net"},
    "msgpack": {"net"},
    "typer": {"cli"},
    "rich": {"view", "cli"},
    "asyncio": {"net", "app"},
    "matplotlib": {"view"},
    "tensorboard": {"view"},
    "pydantic": {"config", "described", "bench"},
    "msgspec": {"net"},
}
# The transport bench measures other libraries: a loop over each is a file of its own, run as a process of its own.
CONTENDERS = Path("bench") / "transport" / "contenders"
OF_CONTENDERS = {"torch", "zmq", "asyncio"}
PURE = {"core"}
IMPURE_MODULES = {"time", "os", "asyncio", "pathlib", "threading", "socket", "random", "datetime", "logging", "io"}


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").replace("__init__", "")


def imports(path: Path) -> Iterator[tuple[int, str, bool]]:
    """(line, module, at the top level of the file) of every import that runs."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the whole name"
            names = [node.module or ""]
            if node.module == "pgczmq":
                names = [f"pgczmq.{alias.name}" for alias in node.names]
            yield from ((node.lineno, name, id(node) in top) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward_and_libraries_stay_at_home(path: Path) -> None:
    layer = layer_of(path)
    at_home = OF_CONTENDERS if path.is_relative_to(PACKAGE / CONTENDERS) else set()
    for line, module, at_top in imports(path):
        where = f"pgczmq/{path.relative_to(PACKAGE)}:{line}"
        root, _, rest = module.partition(".")
        if root == "pgczmq":
            other = rest.partition(".")[0]
            allowed = other in MAY_IMPORT[layer] | {layer} or other == "__version__"
            allowed = allowed or (str(path.relative_to(PACKAGE)), module) in UPWARD
            assert allowed, f"{where}: {layer or 'pgczmq'} must not import {module}: imports go downward only."
        if root in HOMES and root not in at_home:
            assert layer in HOMES[root], f"{where}: {root} has its home in {sorted(HOMES[root])}, not in {layer}."
        if root in {"torch", "torchvision"} - at_home and layer != "train":
            assert not at_top, f"{where}: import torch inside the function that needs it, so that --help is quick."
        if layer in PURE:
            assert root not in IMPURE_MODULES, f"{where}: the core is pure and must not import {module}."


def test_the_table_of_layers_names_everything_there_is() -> None:
    assert {layer_of(path) for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            where = f"pgczmq/{path.relative_to(PACKAGE)}:{node.lineno}"
            assert length <= 36, f"{where}: {node.name} has {length} lines; about 30 is the rule."
