"""The task without torch: arguments, arithmetic, and what it writes down."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pgczmq.core.policies import Plan
from pgczmq.errors import ConfigError, WireError
from pgczmq.train import plain
from pgczmq.train.marks import MARK_FLOATS, PLACES_AT_MOST, Mark, read_applied, read_sent

SIZE = 100


def worker(log: str = "", held: tuple[int, ...] = (1, 2), number: int = 1) -> plain.PlainWorker:
    made = plain.PlainWorker(
        plain.Arguments(SIZE, log=log), seed=3, worker=number, held=held, coefficients=(1.0,) * len(held)
    )
    made.begin("run", "master", "0123456789abcdef")
    return made


def answer(compute: plain.PlainWorker, step: int, params: np.ndarray, nbytes: int = 4 * SIZE) -> np.ndarray:
    room = np.zeros(nbytes, np.uint8)
    compute.load(params, b"")
    for place in range(2):
        compute.evaluate(step, place, 1.0, room)
    compute.encode(room, b"")
    return room


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"colour": 1}, "soak does not take colour. It takes: size, seconds, log, gates"),
        ({"size": 0}, "soak needs size >= 1"),
        ({"size": MARK_FLOATS, "log": "x"}, f"soak needs size >= {MARK_FLOATS + 1}"),
        ({"seconds": -1}, "soak needs size >= 1 and seconds >= 0"),
        ({"log": 3}, "soak needs directories as log and gates"),
    ],
)
def test_arguments_that_cannot_be_are_refused(args: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        plain.Arguments.of(args)


def test_a_step_goes_down_the_mean_gradient() -> None:
    master = plain.PlainMaster(plain.Arguments(SIZE), seed=3, lr=0.5)
    before = master.snapshot()[0]
    update = master.apply(0, [(1, 0.5, answer(worker(), 0, before), b"")], Plan(1))
    wanted = [plain.gradient(before, seed=3, partition=partition, step=0) for partition in (1, 2)]
    np.testing.assert_allclose(master.snapshot()[0], before - 0.25 * (wanted[0] + wanted[1]), rtol=1e-6)
    assert update.finite and update.norm > 0
    assert master.sha256() == plain.digest(master.snapshot()[0])


def test_what_is_not_finite_is_not_applied_and_its_senders_are_named() -> None:
    master = plain.PlainMaster(plain.Arguments(SIZE), seed=3, lr=0.5)
    before = master.sha256()
    bad = answer(worker(), 0, master.snapshot()[0])
    bad.view(np.float32)[7] = np.nan
    good = answer(worker(), 0, master.snapshot()[0])
    update = master.apply(0, [(2, 0.5, bad, b""), (1, 0.5, good, b"")], Plan(2))
    assert (update.finite, update.culprits, master.sha256()) == (False, (2,), before)


def test_what_was_applied_and_sent_is_written_down_with_the_marks(tmp_path: Path) -> None:
    log = str(tmp_path)
    master = plain.PlainMaster(plain.Arguments(SIZE, log=log), seed=3, lr=0.5)
    compute = worker(log)
    for step in range(2):
        master.apply(step, [(1, 0.5, answer(compute, step, master.snapshot()[0]), b"")], Plan(1))
    mark = Mark("0123456789abcdef", 1, 1, (1, 1))
    applied, sent = read_applied(tmp_path)[-1], read_sent(tmp_path)[-1]
    assert (applied.step, applied.messages, applied.sha256) == (1, ((1, 0.5, mark),), master.sha256())
    assert (sent.run, sent.master, sent.mark) == ("run", "master", mark)
    assert sent.at <= applied.at
    assert not master.snapshot()[0][:MARK_FLOATS].any()  # marks move no parameter


def test_a_new_life_retains_nothing() -> None:
    compute = worker()
    answer(compute, 0, np.zeros(SIZE, np.float32))
    compute.begin("run", "another master", "f" * 16)
    with pytest.raises(KeyError):
        compute.encode(np.zeros(4 * SIZE, np.uint8), b"")


def test_a_checkpoint_is_taken_up_to_the_same_bits_and_of_the_right_size_alone(tmp_path: Path) -> None:
    master = plain.PlainMaster(plain.Arguments(SIZE), seed=3, lr=0.5)
    master.apply(0, [(1, 0.5, answer(worker(), 0, master.snapshot()[0]), b"")], Plan(1))
    master.write_files(tmp_path, master.checkpoint_state())
    other = plain.PlainMaster(plain.Arguments(SIZE), seed=3, lr=0.5)
    other.restore(tmp_path)
    assert other.sha256() == master.sha256()
    with pytest.raises(ConfigError, match="has 100 parameters, this run 101"):
        plain.PlainMaster(plain.Arguments(SIZE + 1), seed=3, lr=0.5).restore(tmp_path)


def test_vectors_go_as_bfloat16_too_and_no_other_size() -> None:
    params = np.zeros(2 * SIZE, np.uint8)
    master = plain.PlainMaster(plain.Arguments(SIZE), seed=3, lr=0.5)
    master.write(params, np.zeros(0, np.uint8))
    gradient = answer(worker(), 0, params, nbytes=2 * SIZE)
    assert master.apply(0, [(1, 1.0, gradient, b"")], Plan(1)).finite
    with pytest.raises(WireError, match="a vector has 400 bytes, or 200 as bfloat16: got 396"):
        master.apply(1, [(1, 1.0, np.zeros(396, np.uint8), b"")], Plan(1))


def test_a_mark_has_room_for_so_many_places() -> None:
    with pytest.raises(ConfigError, match="at most 16 partitions: got 17"):
        worker("x", held=tuple(range(PLACES_AT_MOST + 1)))


def test_neither_master_nor_worker_imports_torch() -> None:
    code = "import sys, pgczmq.app.master, pgczmq.app.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
