"""Ctrl+C while runs begin, go on and end: exit code as documented, and nobody and nothing is left.

Workers and masters by themselves are struck by SIGINT in each of their states by ``pgc torture matrix``, of which
``test_matrix_sample`` is a part. Times are printed, not asserted.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BIN, environment
from test_leftovers import children

from pgczmq.bench.torture.matrix.stage import Stage
from pgczmq.bench.torture.matrix.states import STATES
from pgczmq.train import gates

SOAK = ["task.name=soak", "workers=2", "scheme.name=dgd", "ui.mode=none", "name=run", "net.heartbeat=0.2"]


class Typed:
    """A command on a terminal: Ctrl+C reaches all its processes."""

    def __init__(self, directory: Path, *command: str) -> None:
        self.directory = directory
        self.log = (directory / "log").open("w")
        words = [str(BIN / command[0]), *command[1:]]
        self.process = subprocess.Popen(
            words, cwd=directory, env=environment(), stdout=self.log, stderr=self.log, start_new_session=True
        )

    def until(self, condition: Callable[[], object]) -> None:
        """Look until the condition holds; the bound only guards against a hang."""
        limit = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < limit, (self.directory / "log").read_text()
            time.sleep(0.02)

    def ctrl_c(self) -> int:
        """Type it, once; returns the exit code when nobody is left."""
        begun = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(timeout=60)
        self.until(lambda: not children(self.directory))
        print(f"everybody was gone after {time.monotonic() - begun:.2f} s")
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Callable[..., Typed]]:
    opened: list[Typed] = []

    def start(*command: str) -> Typed:
        opened.append(Typed(tmp_path, *command))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def settings(*more: str) -> list[str]:
    return [word for setting in (*SOAK, *more) for word in ("--set", setting)]


def steps(directory: Path) -> int:
    file = directory / "runs" / "run" / "steps.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


@pytest.mark.parametrize("command", [("pgc", "local"), ("pgc", "sim"), ("pgc-master",), ("pgc-worker", "--id", "0")])
def test_as_soon_as_the_program_runs(command: tuple[str, ...], typed: Callable[..., Typed], tmp_path: Path) -> None:
    one = typed(*command, *(settings("net.port=0") if command[0] != "pgc-worker" else ()))
    one.until(lambda: b"pgc" in Path(f"/proc/{one.process.pid}/cmdline").read_bytes())
    assert one.ctrl_c() in {130, -signal.SIGINT, 1}  # until Python has begun, it ends as it likes


@pytest.mark.parametrize(("place", "step"), [("prepare-1", 0), ("evaluate-1", 5)])
def test_while_a_worker_of_a_local_run_is_busy(
    place: str, step: int, typed: Callable[..., Typed], tmp_path: Path
) -> None:
    gates.close(tmp_path, place, step)
    one = typed("pgc", "local", *settings(f"task.args.gates={tmp_path}", "steps=1000000"))
    one.until(lambda: gates.is_reached(tmp_path, place))
    assert one.ctrl_c() == 75


def test_while_steps_of_a_local_run_follow_each_other(typed: Callable[..., Typed], tmp_path: Path) -> None:
    one = typed("pgc", "local", *settings("steps=1000000"))
    one.until(lambda: steps(tmp_path) > 20)
    assert one.ctrl_c() == 75


BUSY = """
import hashlib
from dataclasses import dataclass
from pathlib import Path
from pgczmq.core.policies import Needs, Plan, PolicyState

@dataclass(frozen=True)
class Busy:
    needs = Needs()

    def first(self):
        return PolicyState(Plan(2, 1.0))

    def next(self, state, finished):
        if finished.step == 20:
            Path("computing").touch()
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes in C, deaf to signals
        return state
"""


def test_while_the_masters_event_loop_is_busy(typed: Callable[..., Typed], tmp_path: Path) -> None:
    """A policy decides between two messages: what takes long there would keep the loop from hearing of a signal."""
    (tmp_path / "busy.py").write_text(BUSY)
    one = typed("pgc", "local", *settings("steps=1000", "scheme.name=is-sgd", "policy.name=busy:Busy"))
    one.until((tmp_path / "computing").exists)
    assert one.ctrl_c() == 130


def test_while_a_simulation_goes_on(typed: Callable[..., Typed], tmp_path: Path) -> None:
    one = typed("pgc", "sim", "--timing-only", *settings("task.name=linear-regression", "steps=100000000"))
    one.until((tmp_path / "runs" / "run").exists)
    assert one.ctrl_c() in {75, 130}


def test_a_second_ctrl_c_does_not_wait_for_what_the_first_one_waits_for(tmp_path: Path) -> None:
    state = STATES["applying"]
    with Stage(tmp_path, state.settings, patience=60) as stage:
        state.reach(stage)

        def is_gone() -> bool:
            stage.master.send(signal.SIGINT)
            return not stage.master.lives

        stage.until(is_gone, "the end of the master")
        assert stage.master.collect() == 130
