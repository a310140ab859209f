"""Runs watched from what they leave: while they are written, over, gone on with, and played back."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pgczmq import config as configs
from pgczmq.app import following as module
from pgczmq.app import simulate, top
from pgczmq.app.following import Following
from pgczmq.app.playback import Playback
from pgczmq.errors import ConfigError
from pgczmq.gather.gathering import Gathering
from pgczmq.net.viewer import Viewer
from pgczmq.picture import Picture
from pgczmq.rewind import locked, rewind
from pgczmq.runlog import FILES, Record, Result, RunRecord

STEPS = 60


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A simulated run's directory, and its records as they were made."""
    delay = {"model": "exponential", "mean": 1.0}
    scheme = {"name": "is-sgd", "stragglers": 2}
    config = configs.parse({"name": "run", "workers": 6, "steps": STEPS, "scheme": scheme, "delay": delay})
    root, happened = tmp_path_factory.mktemp("runs"), list[Record]()
    simulate.run(config, model=None, sink=happened.append, root=root)
    return root / "run", happened


@pytest.fixture
def copy(made: tuple[Path, list[Record]], tmp_path: Path) -> Path:
    """The run's directory with its configuration alone."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_bytes((made[0] / "config.toml").read_bytes())
    return tmp_path / "run"


def picture_of(happened: Sequence[Record], directory: Path) -> Picture:
    """What a view in the same process shows; the number of parameters is not on record."""
    gathering = Gathering()
    for record in happened:
        if isinstance(record, RunRecord):
            gathering.add(replace(record, directory=str(directory), parameters=0))
        else:
            gathering.add(replace(record, run=simulate.HERE, loss=None) if isinstance(record, Result) else record)
    return gathering.picture


def same(one: Picture, other: Picture) -> bool:
    """Pictures of NaNs, too."""
    return repr(one) == repr(other)


def lines_of(directory: Path) -> dict[str, list[bytes]]:
    return {name: (directory / name).read_bytes().splitlines(keepends=True) for name in FILES.values()}


def append(directory: Path, lines: dict[str, list[bytes]]) -> None:
    for name, some in lines.items():
        with (directory / name).open("ab") as file:
            file.write(b"".join(some))


def test_a_run_that_is_over_is_shown_as_it_was_in_the_end(made: tuple[Path, list[Record]]) -> None:
    directory, happened = made
    with Following(directory) as following:
        assert following.news.wait(30)
        assert same(following.seen().picture, picture_of(happened, directory))
        assert following.seen().note == ""


def test_nothing_is_shown_before_all_that_is_there_has_been_read(made: tuple[Path, list[Record]]) -> None:
    seen = Following(made[0]).seen()
    assert seen.picture.steps_seen == 0
    assert seen.note == f"reading {made[0]}: 0 %"


def test_a_run_is_followed_while_it_is_written(made: tuple[Path, list[Record]], copy: Path) -> None:
    """Lines come in pieces, and not every file in each."""
    following, whole = Following(copy), lines_of(made[0])
    following.look()
    assert following.seen().picture.steps_seen == 0
    append(copy, {name: lines[: len(lines) // 2] for name, lines in whole.items()})
    append(copy, {"steps.jsonl": [whole["steps.jsonl"][STEPS // 2][:40]]})
    following.look()
    assert following.seen().picture.steps_done == STEPS // 2
    rest = {name: lines[len(lines) // 2 :] for name, lines in whole.items()}
    rest["steps.jsonl"][0] = rest["steps.jsonl"][0][40:]
    append(copy, rest)
    following.look()
    (copy / "result.json").write_bytes((made[0] / "result.json").read_bytes())
    following.look()
    known, expected = following.seen().picture, picture_of(made[1], copy)
    assert (known.result, known.steps_done, known.loss) == (expected.result, STEPS, known.loss)
    assert [worker.used for worker in known.workers] == [worker.used for worker in expected.workers]


def test_a_run_that_is_gone_on_with_is_read_anew(made: tuple[Path, list[Record]], copy: Path) -> None:
    append(copy, lines_of(made[0]))
    (copy / "result.json").write_bytes((made[0] / "result.json").read_bytes())
    following = Following(copy)
    following.look()
    assert following.seen().picture.result is not None
    (copy / "result.json").unlink()
    following.look()
    assert (following.seen().picture.result, following.seen().picture.steps_done) == (None, STEPS)
    rewind(copy, 20)
    following.look()
    assert following.seen().picture.steps_done == following.seen().picture.steps_seen == 20


def test_lines_that_somebody_has_spoiled_are_left_out(made: tuple[Path, list[Record]], copy: Path) -> None:
    whole = lines_of(made[0])
    spoiled = [b"\xff\xfe{\n", b"[]\n", b'{"step":1}\n', b"null\n"]
    broken = whole["steps.jsonl"][7].replace(b'"applied_at":', b'"applied_at":"soon","was":')
    whole["steps.jsonl"][7:8] = [*spoiled, broken]
    append(copy, whole)
    following = Following(copy)
    following.look()
    assert following.seen().picture.steps_seen == STEPS - 1


def test_of_very_many_latencies_the_last_are_enough(
    made: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are needed for the last steps only."""
    directory, happened = made
    lines = lines_of(directory)["latencies.jsonl"]
    monkeypatch.setattr(module, "LATENCIES_BYTES", sum(map(len, lines[-350:])) - 5)
    following = Following(directory)
    following.look()
    known, expected = following.seen().picture, picture_of(happened, directory)
    assert same(replace(known, time=None), replace(expected, time=None))


def test_it_is_said_when_nothing_comes_any_more(made: tuple[Path, list[Record]], copy: Path) -> None:
    append(copy, lines_of(made[0]))
    clock = Clock()
    following = Following(copy, clock)
    following.look()
    assert following.seen().note == ""
    at = following.seen().now
    clock.now += 300
    with locked(copy):  # somebody works on it
        following.look()
        assert following.seen().note == f"nothing new in {copy} for 5 minutes"
        assert following.seen().now == pytest.approx(at + module.NEWS_SECONDS, abs=1.0)
        assert not following.seen().is_over
    following.look()
    assert following.seen().note == module.DIED and following.seen().is_over
    for name in FILES.values():
        os.utime(copy / name, (1e9, 1e9))  # of a run that was killed years ago
    late = Following(copy, clock)
    with locked(copy):
        late.look()
    assert late.seen().note.endswith("days")


def test_a_run_whose_result_is_spoiled_has_died(made: tuple[Path, list[Record]], copy: Path) -> None:
    append(copy, lines_of(made[0]))
    (copy / "result.json").write_text("{")
    clock = Clock()
    following = Following(copy, clock)
    following.look()
    clock.now += 300
    following.look()
    assert following.seen().note == module.DIED and following.seen().is_over


def test_a_spoiled_configuration_is_named(copy: Path) -> None:
    (copy / "config.toml").write_text("x=")
    with pytest.raises(ConfigError, match=f"{copy / 'config.toml'} is not TOML"):
        Following(copy)


@pytest.mark.parametrize("kind", [Following, lambda directory: Playback(directory, 1.0)])
def test_what_is_no_run_directory_is_a_sentence(kind: type[Following], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        kind(tmp_path)


# ---------------------------------------------------------------- as it went


def test_a_playback_shows_the_run_as_it_was_then(made: tuple[Path, list[Record]]) -> None:
    directory, happened = made
    clock = Clock()
    playback = Playback(directory, 4.0, clock)
    now, pictures = 0.0, []
    while playback.seen().note:
        clock.now += 0.25
        now += 1.0
        pictures.append(playback.seen())
        assert pictures[-1].now == pytest.approx(now) or not pictures[-1].note
        assert pictures[-1].picture.at <= now
    assert pictures[0].note == "as recorded, 4 times as fast"
    halfway = pictures[len(pictures) // 2]
    known = [record for record in happened if isinstance(record, RunRecord) or at(record) <= halfway.now]
    assert 0 < halfway.picture.steps_done < STEPS
    expected = picture_of(known, directory)
    assert same(halfway.picture, expected)
    assert same(playback.seen().picture, picture_of(happened, directory))


def at(record: Record) -> float:
    for name in ("applied_at", "arrived_at", "at"):
        if hasattr(record, name):
            return float(getattr(record, name))
    return float("inf")


def test_a_playback_stands_still_while_nobody_looks(made: tuple[Path, list[Record]]) -> None:
    clock = Clock()
    playback = Playback(made[0], 1.0, clock)
    playback.seen()
    clock.now += 1000
    assert playback.seen().now == 0.5


# ---------------------------------------------------------------- which run


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory to be in, on a machine where nobody listens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(top, "_answers", lambda host, port: False)
    return tmp_path


def watched(asked: str | None, speed: float | None = None, **environment: str) -> top.Watched:
    return top.watched(asked, speed, environment=environment, directory=Path.cwd(), root=Path("runs"))


def test_a_run_is_named_by_its_directory_or_by_its_name(made: tuple[Path, list[Record]], elsewhere: Path) -> None:
    (elsewhere / "runs").symlink_to(made[0].parent)
    for asked in (str(made[0]), "runs/run", "run"):
        assert isinstance(watched(asked), Following)
        assert isinstance(watched(asked, 2.0), Playback)


def test_a_master_is_named_by_its_address_or_as_for_workers(elsewhere: Path) -> None:
    assert isinstance(watched("tcp://10.0.0.5:5555"), Viewer)
    assert isinstance(watched("vm-0:5555"), Viewer)
    assert isinstance(watched(None, PGC_MASTER="tcp://10.0.0.5:5555"), Viewer)
    (elsewhere / "pgc-connect.json").write_text('{"master": "tcp://10.0.0.5:5555"}')
    assert isinstance(watched(None), Viewer)


def test_without_a_name_it_is_the_master_here_else_the_newest_run_in_progress(
    made: tuple[Path, list[Record]], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new", "left"):
        (elsewhere / "runs" / name).mkdir(parents=True)
        (elsewhere / "runs" / name / "config.toml").write_bytes((made[0] / "config.toml").read_bytes())
    os.utime(elsewhere / "runs" / "old", (1e9, 1e9))
    with pytest.raises(ConfigError, match="no run goes on in runs/"):
        watched(None)
    with locked(elsewhere / "runs" / "old"), locked(elsewhere / "runs" / "new"):
        found = watched(None)
        assert isinstance(found, Following)
        found.look()
        assert found.seen().picture.run is not None
        assert found.seen().picture.run.name == "new"
        monkeypatch.setattr(top, "_answers", lambda host, port: True)
        assert isinstance(watched(None), Viewer)


@pytest.mark.parametrize(
    ("asked", "speed", "sentence"),
    [
        ("nothing", None, "got nothing, and no run has that name in runs/"),
        ("runs/nothing", None, "got runs/nothing, and no run"),
        ("tcp://a:b", None, "a master's address is tcp://HOST:PORT"),
        ("tcp://10.0.0.5:5555", 2.0, "--speed is for a recorded run"),
    ],
)
def test_what_cannot_be_watched_is_a_sentence(elsewhere: Path, asked: str, speed: float | None, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        watched(asked, speed)
