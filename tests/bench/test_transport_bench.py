"""The transport bench: everybody computes the same, and nobody gets away with less. How fast, no test asks."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pgczmq.bench.transport import race
from pgczmq.bench.transport.demands import ratios
from pgczmq.bench.transport.race import CONTENDERS, OWN, Race, Row, entrants
from pgczmq.bench.transport.turn import Took
from pgczmq.bench.transport.vectors import EMPTY, VectorMaster, VectorWorker
from pgczmq.bench.transport.work import BLOCK, FloatArray, Work
from pgczmq.cli import races as command
from pgczmq.errors import ConfigError, PgcError
from pgczmq.net.memory import why_not_here
from pgczmq.train import half

PGC = str(Path(sys.executable).parent / "pgc")
STEPS = 20


def gradients(work: Work, step: int, params: FloatArray) -> list[FloatArray]:
    found = [work.start() for _ in range(work.workers)]
    for worker, out in enumerate(found):
        work.gradient(worker, step, params, out=out)
    return found


def updated(work: Work, params: FloatArray, vectors: list[FloatArray]) -> FloatArray:
    """By NumPy's own mean."""
    return params - np.mean(np.stack(vectors), axis=0, dtype=np.float64).astype(np.float32)


# ------------------------------------------------------------ the work


@pytest.mark.parametrize(("workers", "params"), [(2, 1), (3, 20_000), (12, 2 * BLOCK), (7, 2 * BLOCK + 5)])
def test_the_right_result_passes_by_either_arithmetic(workers: int, params: int) -> None:
    work = Work(workers, params)
    ours, plain = work.start(), work.start()
    middle = params // 2
    for step in range(STEPS):
        vectors = gradients(work, step, ours)
        work.update(ours, vectors, 0, middle)
        work.update(ours, vectors, middle, params)
        plain = updated(work, plain, gradients(work, step, plain))
    work.check(ours, STEPS)
    work.check(plain, STEPS)


@pytest.mark.parametrize("mistake", ["lost", "twice", "old parameters", "step before", "half", "not a number"])
@pytest.mark.parametrize("at", [1, STEPS - 1])
def test_one_mistake_at_any_step_is_found_at_the_end(mistake: str, at: int) -> None:
    work = Work(12, 1000)
    params = before = work.start()
    for step in range(STEPS):
        vectors = gradients(work, step, params)
        if step == at:
            spoil(mistake, work, vectors, before, step)
        before, params = params, updated(work, params, vectors)
    with pytest.raises(PgcError, match="the result is wrong"):
        work.check(params, STEPS)


def spoil(mistake: str, work: Work, vectors: list[FloatArray], before: FloatArray, step: int) -> None:
    """What a transport might do to the gradient of worker 5."""
    match mistake:
        case "lost":
            vectors[5][:] = 0
        case "twice":
            vectors[5] *= 2
        case "old parameters":
            work.gradient(5, step, before, out=vectors[5])
        case "step before":
            work.gradient(5, step - 1, before, out=vectors[5])
        case "half":
            vectors[5][500:] = 0
        case "not a number":
            vectors[5][7] = np.nan


def test_the_wrong_number_of_steps_is_found() -> None:
    work = Work(3, 10)
    params = updated(work, work.start(), gradients(work, 0, work.start()))
    work.check(params, 1)
    with pytest.raises(PgcError, match="after 2 steps"):
        work.check(params, 2)


@pytest.mark.parametrize("workers", [2, 3, 12, 64, 128])
def test_gradients_lose_nothing_in_bfloat16(workers: int) -> None:
    work = Work(workers, 100)
    params = work.start()
    for step in range(STEPS):
        vectors = gradients(work, step, params)
        for vector in vectors:
            narrow, wide = np.empty(100, np.uint16), np.empty(100, np.float32)
            half.to_bfloat16(vector, narrow)
            half.from_bfloat16(narrow, wide)
            np.testing.assert_array_equal(wide, vector)
        work.update(params, vectors, 0, work.params)


# ------------------------------------------------------------ this program's two sides


@pytest.mark.parametrize("itemsize", [4, 2])
@pytest.mark.parametrize("params", [1, 1000, 2 * BLOCK + 5])
def test_the_programs_arithmetic_gives_the_result(itemsize: int, params: int) -> None:
    work = Work(5, params)
    master = VectorMaster(work, threads=2)
    workers = [VectorWorker(work, number) for number in range(work.workers)]
    sent = np.empty(itemsize * params, np.uint8)
    rooms = [np.empty(itemsize * params, np.uint8) for _ in workers]
    for step in range(STEPS):
        master.write(sent, EMPTY)
        for worker, room in zip(workers, rooms, strict=True):
            worker.load(sent, EMPTY)
            worker.evaluate(step, 0, 1.0, room)
        master.fold(step, [(number, rooms[number]) for number in (3, 1)])
        update = master.apply(step, [(number, 1 / work.workers, room, EMPTY) for number, room in enumerate(rooms)])
        assert update.finite
    work.check(master.params, STEPS)


def test_a_worker_knows_the_norm_of_what_it_wrote() -> None:
    work = Work(5, 2 * BLOCK + 5)
    worker, room = VectorWorker(work, 4), np.empty(4 * work.params, np.uint8)
    worker.load(work.start(), EMPTY)
    worker.evaluate(0, 0, 1.0, room)
    written = room.view(np.float32)
    np.testing.assert_array_equal(written, gradients(work, 0, work.start())[4])
    assert worker.encode(room, EMPTY) == pytest.approx(np.linalg.norm(written.astype(np.float64)), rel=1e-6)


# ------------------------------------------------------------ the race


def test_every_contender_takes_turns_and_gives_its_row(tmp_path: Path) -> None:
    asked = "--workers 3 --params 20000 --steps 2 --against pyzmq,memory,gloo --json out.json"
    done = subprocess.run(
        [PGC, "bench", "transport", *asked.split()], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in found["rows"]}
    missing = {"ray"} | ({"shm"} if why_not_here() else set())
    assert list(rows) == [name for name in CONTENDERS if name not in missing]
    assert {tuple(row) for row in rows.values()} == {("name", "median_ms", "min_ms", "max_ms", "bytes", "peak_rss_mb")}
    for row in rows.values():
        assert 0 < row["min_ms"] <= row["median_ms"] <= row["max_ms"]
        assert row["bytes"] == (240_000 if row["name"] == "tcp-bfloat16" else 480_000)
        assert row["peak_rss_mb"] > 10
    medians = {name: row["median_ms"] for name, row in rows.items()}
    for ratio in found["ratios"]:
        assert ratio["ratio"] == medians[ratio["name"]] / medians[ratio["over"]]
        assert ratio["at_most"] is None  # nothing is asked for at this size
    assert "tcp takes" in done.stdout and " of pyzmq" in done.stdout
    assert "turns, done" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'pgczmq[ray]'")
def test_ray_takes_part_where_it_is_installed() -> None:
    took = Race(Work(2, 1000), steps=1, names=["ray"])
    assert list(took.run()) == ["ray"]
    assert took.rows[0].median_ms > 0


def test_the_bench_says_how_to_get_ray_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(race, "take_turn", lambda name, work, steps: Took([0.001] * steps, 50.0))
    command.transport(Work(2, 1000), steps=1, against=["ray"], json_file=None)
    said = capsys.readouterr()
    assert "without ray: Ray is not installed: pip install 'pgczmq[ray]'" in said.err
    assert "raw-tcp" in said.out and "ray " not in said.out


def test_a_contender_that_fails_is_named_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "nobody", race.Contender("nobody"))
    with pytest.raises(PgcError, match=r"nobody failed with exit code 1: .*No module named .*nobody"):
        list(Race(Work(2, 10), steps=1, names=["nobody"]).run())


def test_an_unknown_rival_is_refused() -> None:
    with pytest.raises(ConfigError, match="ray, gloo, pyzmq, memory: got 'mpi'"):
        entrants(["mpi"])
    assert entrants([]) == [*OWN, "raw-tcp"]
    assert entrants(["memory", "ray", "pyzmq", "gloo"]) == list(CONTENDERS)


def test_turns_are_long_enough_to_be_measured_and_warm_up_does_not_count() -> None:
    turns: list[tuple[str, int]] = []
    second = {"tcp": 0.001, "raw-tcp": 1.0}

    def take(name: str, work: Work, steps: int) -> Took:
        turns.append((name, steps - race.WARM_UP))
        return Took([99.0] * race.WARM_UP + [second[name]] * (steps - race.WARM_UP), float(len(turns)))

    done = Race(Work(2, 10), steps=12, names=["tcp", "raw-tcp"], take=take)
    assert len(list(done.run())) == done.turns == 10
    assert [steps for name, steps in turns if name == "tcp"] == [3, 1000, 1000, 1000, 1000]
    assert [steps for name, steps in turns if name == "raw-tcp"] == [3, 3, 2, 2, 2]
    assert [name for name, _ in turns] == ["tcp", "raw-tcp"] * 5
    assert [(row.max_ms, row.peak_rss_mb) for row in done.rows] == [(1.0, 9.0), (1000.0, 10.0)]


@pytest.mark.parametrize(
    ("params", "asked"),
    [
        (11_700_000, {("shm", "memory"): 1.5, ("tcp", "pyzmq"): 0.5, ("tcp-bfloat16", "tcp"): 0.6}),
        (1_000, {("shm", "pyzmq"): 1.3, ("tcp", "pyzmq"): 1.3}),
        (100_000, {}),
    ],
)
def test_what_is_asked_for_depends_on_the_size(params: int, asked: dict[tuple[str, str], float]) -> None:
    names = ("shm", "tcp", "tcp-bfloat16", "pyzmq", "memory")
    found = ratios(
        [Row(name, median, 0, 0, 0, 0) for name, median in zip(names, (3, 8, 5, 10, 2), strict=True)], params
    )
    assert {(ratio.name, ratio.over): ratio.at_most for ratio in found if ratio.at_most is not None} == asked
    by_pair = {(ratio.name, ratio.over): ratio for ratio in found}
    assert by_pair["shm", "memory"].ratio == 1.5 and not by_pair["shm", "memory"].missed
    assert by_pair["tcp-bfloat16", "tcp"].ratio == 0.625
    assert by_pair["tcp-bfloat16", "tcp"].missed == (params == 11_700_000)


def members(directory: Path) -> list[str]:
    """Processes of turns whose scratch directory is there."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "contenders" in line and str(directory) in line]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The bench in a turn that is still going on, with its scratch directories here."""
    process = subprocess.Popen(
        [PGC, "bench", "transport", "--workers", "3", "--params", "1000", "--steps", "1000000", "--against", ""],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_turn_that_is_interrupted(
    started: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    while len(members(tmp_path)) < 4:
        assert started.poll() is None
    started.send_signal(number)
    assert started.wait(60) == (130 if number == signal.SIGINT else -number)
    while members(tmp_path) or list(tmp_path.glob("pgc-bench-*")):
        pass  # what was killed with the bench itself ends a moment after it
