"""Instances of ``core.values.value`` have no guard at run time: theirs is the type checker; nobody goes round it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from test_layers import FILES, PACKAGE

WRITES = """
from pgczmq.core.events import Tick
from pgczmq.core.values import value

@value
class Point:
    x: int

Point(1).x = 2
Tick(1.0).at = 2.0
"""


def test_the_type_checker_refuses_to_write_to_a_value(tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    command = [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "writes.py"]
    told = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True, timeout=120
    )
    lines = [line for line in told.stdout.splitlines() if line.startswith("writes.py")]
    assert [line.split(":")[1] for line in lines] == ["9", "10"], told.stdout + told.stderr
    assert all("read-only" in line for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_goes_round_the_type_checker(path: Path) -> None:
    """``object.__setattr__`` is for ``__post_init__`` of frozen classes, on ``self``; ``setattr`` is not used."""
    tree = ast.parse(path.read_text())
    own = {
        id(node)
        for method in ast.walk(tree)
        if isinstance(method, ast.FunctionDef) and method.name == "__post_init__"
        for node in ast.walk(method)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "object.__setattr__"}:
            on_self = id(node) in own and ast.unparse(node.args[0]) == "self"
            assert on_self, f"pgczmq/{path.relative_to(PACKAGE)}:{node.lineno} writes to a value that is frozen."
