"""Which checkpoint a run goes on from, and whether it fits the configuration. Nothing is trained here."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pgczmq import config
from pgczmq.app.outcome import Keeper
from pgczmq.app.resume import SIMULATED, Beginning, begin, differing, find
from pgczmq.app.software import made_with
from pgczmq.config import RunConfig
from pgczmq.core.divergence import Losses
from pgczmq.core.policies import Plan, PolicyState
from pgczmq.core.progress import Progress
from pgczmq.errors import ConfigError, PgcError
from pgczmq.rewind import locked
from pgczmq.runlog import EvalRecord, Result, write_result

BASE = {"task.name": "soak", "workers": 4, "steps": 100}


def settings(**changes: Any) -> RunConfig:
    given = BASE | {key.replace("__", "."): value for key, value in changes.items()}
    return config.load(None, [f"{key}={value}" for key, value in given.items()], {})


def model_file(directory: Path) -> None:
    (directory / "model.bin").write_bytes(b"parameters")


def keeper_in(directory: Path, asked: RunConfig, run_id: str) -> Keeper:
    return Keeper(asked, directory, run_id=run_id, coefficients_NC=np.ones((4, 1)), sync=lambda: None)


def progress(steps: int) -> Progress:
    return Progress(steps, PolicyState(Plan(3)), Losses(1.0, (1.0,)))


def leave(root: Path, asked: RunConfig, *steps: int, name: str = "run", run_id: str = "abc", over: int = -1) -> Path:
    """A run directory with checkpoints of these steps; ``over`` is the exit code of a run that has a result."""
    with begin(asked, None, root, name=name, run_id=run_id) as beginning:
        for step in steps:
            keeper_in(beginning.directory, asked, run_id).write(progress(step), model_file)
        if over >= 0:
            write_result(beginning.directory, Result("dgd", 4, 0, 9, 1.0, 1.0, None, 0.0, False, "", over, "", ""))
    return beginning.directory


def found_in(root: Path, asked: RunConfig, resume: str = "auto", run_id: str = "new") -> str:
    found = find(asked, resume, root, run_id=run_id)
    if found is None:
        return "nothing"
    return (
        f"{found.directory and found.directory.name}/{found.checkpoint and found.checkpoint.name}, run {found.run_id}"
    )


def test_never_is_never(tmp_path: Path) -> None:
    leave(tmp_path, settings(name="run"), 10)
    assert found_in(tmp_path, settings(name="run"), "never") == "nothing"


def test_a_name_says_which_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asked = settings(name="run")
    assert found_in(tmp_path, asked) == "nothing"
    assert "a new run begins" in caplog.text
    leave(tmp_path, asked, 10, 20)
    assert found_in(tmp_path, asked) == "run/step_000020, run abc"
    assert "step_000020, after 20 steps" in caplog.text
    leave(tmp_path, settings(name="other"), name="other")
    assert found_in(tmp_path, settings(name="other")) == "other/None, run new"
    assert "has no checkpoint: the run begins again" in caplog.text


def test_a_run_that_ended_without_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    asked = settings(name="run")
    leave(tmp_path, asked, over=0)
    assert found_in(tmp_path, asked) == "nothing"
    with begin(asked, None, tmp_path, name="run", run_id="x") as beginning:
        assert beginning.directory.name == "run-2"


def test_without_a_name_it_is_the_newest_unfinished_run_of_the_same_configuration(tmp_path: Path) -> None:
    asked = settings()
    assert found_in(tmp_path, asked) == "nothing"
    leave(tmp_path, asked, 10, name="killed", run_id="k")
    leave(tmp_path, asked, 10, 20, name="interrupted", run_id="i", over=75)
    leave(tmp_path, asked, 30, name="done", over=0)
    leave(tmp_path, settings(seed=2), 40, name="other-seed")
    leave(tmp_path, settings(steps=101), 40, name="other-steps")
    leave(tmp_path, asked, name="no-checkpoint")
    leave(tmp_path, asked, 50, name="simulated", run_id=SIMULATED)
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "not-a-run" / "config.toml").write_text("workers = 'many'")
    assert found_in(tmp_path, asked) == "interrupted/step_000020, run i"
    assert found_in(tmp_path, asked, run_id=SIMULATED) == "simulated/step_000050, run simulated"
    with locked(tmp_path / "interrupted"):  # somebody works on it
        assert found_in(tmp_path, asked) == "killed/step_000010, run k"
    leave(tmp_path, asked, 60, name="deserted", run_id="d", over=74)  # all its workers were gone for too long
    assert found_in(tmp_path, asked) == "deserted/step_000060, run d"


def test_a_path_is_a_run_or_one_checkpoint(tmp_path: Path) -> None:
    asked = settings()
    run = leave(tmp_path, asked, 10, 20)
    assert found_in(tmp_path, asked, str(run)) == "run/step_000020, run abc"
    assert found_in(tmp_path, asked, str(run / "checkpoints" / "step_000010")) == "run/step_000010, run abc"
    elsewhere = tmp_path / "elsewhere"
    (run / "checkpoints" / "step_000010").rename(elsewhere)
    assert found_in(tmp_path, asked, str(elsewhere)) == "None/elsewhere, run abc"
    with pytest.raises(ConfigError, match=r"nowhere is not there"):
        find(asked, str(tmp_path / "nowhere"), tmp_path, run_id="new")


def test_a_damaged_newest_one_is_named_and_the_one_before_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = settings(name="run")
    run = leave(tmp_path, asked, 10, 20)
    (run / "checkpoints" / "step_000020" / "model.bin").write_bytes(b"paramEters")
    assert found_in(tmp_path, asked) == "run/step_000010, run abc"
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "step_000020 is damaged: model.bin is not what was written" in said


def test_another_configuration_is_one_error_that_names_every_key(tmp_path: Path) -> None:
    leave(tmp_path, settings(name="run"), 10)
    asked = settings(name="run", seed=2, scheme__name="dgd", scheme__load=2)
    with pytest.raises(ConfigError) as error:
        find(asked, "auto", tmp_path, run_id="new")
    assert "scheme.load was unset and is 2; scheme.name was pgc-cr and is dgd; seed was 1 and is 2" in str(error.value)


def test_what_does_not_decide_what_is_trained_may_be_another(tmp_path: Path) -> None:
    leave(tmp_path, settings(name="run"), 10)
    other = {"steps": 200, "net.port": 7000, "eval.every": 7, "checkpoint.every": 3, "delay.model": "constant"}
    assert found_in(tmp_path, settings(name="run", **other)) == "run/step_000010, run abc"
    strict = {"deterministic": "true"}
    assert differing(settings(**strict), settings(**strict, **{"delay.model": "constant"})) == [
        "delay.model was none and is constant"
    ]
    cosine = {"optimizer.schedule": "cosine"}
    assert differing(settings(**cosine), settings(**cosine, steps=200)) == ["steps was 100 and is 200"]


def test_fewer_steps_than_there_are_is_an_error(tmp_path: Path) -> None:
    leave(tmp_path, settings(name="run"), 50)
    with pytest.raises(ConfigError, match=r"got steps=49, .*step_000050 has 50 already"):
        find(settings(name="run", steps=49), "auto", tmp_path, run_id="new")


def test_a_simulated_run_is_not_gone_on_with_for_real(tmp_path: Path) -> None:
    leave(tmp_path, settings(name="run"), 10, run_id=SIMULATED)
    with pytest.raises(ConfigError, match="of the other kind"):
        find(settings(name="run"), "auto", tmp_path, run_id="new")


def test_one_from_before_this_was_possible_is_said_to_be(tmp_path: Path) -> None:
    from pgczmq import checkpoints

    path = checkpoints.write(tmp_path / "run" / "checkpoints", 5, files=model_file, state={"step": 5, "run": "abc"})
    with pytest.raises(ConfigError, match="could not yet go on with a run"):
        find(settings(), str(path), tmp_path, run_id="new")


def test_going_on_from_an_earlier_one_sets_the_later_ones_aside(tmp_path: Path) -> None:
    asked = settings(name="run")
    run = leave(tmp_path, asked, 10, 20, 30, over=75)
    found = find(asked, str(run / "checkpoints" / "step_000010"), tmp_path, run_id="new")
    with begin(asked, found, tmp_path, name="run", run_id="new") as beginning:
        assert (beginning.directory, beginning.run_id, beginning.progress) == (run.resolve(), "abc", progress(10))
        made, resumed = beginning.events
        assert (made.kind, made.at) == ("software", beginning.at)
        assert resumed.text == "from step 10; 0 recorded steps are done again; set aside: step_000020, step_000030"
        assert not (run / "result.json").exists()
    assert found_in(tmp_path, asked) == "run/step_000010, run abc"
    assert sorted(path.name for path in (run / "checkpoints" / "undone").iterdir()) == ["step_000020", "step_000030"]


def test_what_is_another_than_before_is_on_record(tmp_path: Path) -> None:
    run = leave(tmp_path, settings(name="run"), 10, over=75)
    now = settings(name="run", steps=200, net__port=0)
    with begin(now, find(now, "auto", tmp_path, run_id="new"), tmp_path, name="run", run_id="new") as beginning:
        resumed = beginning.events[-1]
        assert resumed.text.endswith("are done again; net.port was 5555 and is 0; steps was 100 and is 200")
    assert config.loads((run / "config.toml").read_text()) == now


def test_one_that_is_named_without_its_folder_is_pointed_at(tmp_path: Path) -> None:
    run = leave(tmp_path, settings(name="pgc-there"), 10, name="pgc-there")
    with pytest.raises(ConfigError, match=f"pgc-there is not there. --resume {run} would work"):
        find(settings(), "pgc-there", tmp_path, run_id="new")
    with pytest.raises(ConfigError, match=r"pgc-nowhere is not there\.$"):
        find(settings(), "pgc-nowhere", tmp_path, run_id="new")


def test_whoever_begins_anew_is_told_of_the_one_that_has_not_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leave(tmp_path, settings(), 10, over=75)
    leave(tmp_path, settings())
    assert f"{tmp_path / 'run'} has not finished; --resume {tmp_path / 'run'} goes on with" in caplog.text
    caplog.clear()
    leave(tmp_path, settings(), 10, over=0, name="other")
    leave(tmp_path, settings(), name="other")
    with locked(tmp_path / "run"):  # it goes on just now: nobody else can go on with it
        leave(tmp_path, settings())
    assert caplog.text == ""


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*run/config.toml: No space left on device\. Free space"):
        leave(tmp_path, settings())
    assert list(tmp_path.iterdir()) == []


def test_one_that_could_not_begin_leaves_nothing(tmp_path: Path) -> None:
    for left, error in (([], ConfigError), (["run"], PgcError)):
        with pytest.raises(error), begin(settings(), None, tmp_path, name="run", run_id="new"):
            raise error("the port is taken")
        assert [path.name for path in tmp_path.iterdir()] == left


def test_one_that_refused_after_its_first_step_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), begin(settings(), None, tmp_path, name="run", run_id="new") as beginning:
        (beginning.directory / "steps.jsonl").write_text("{}\n")
        raise ConfigError("something of the task")
    assert (tmp_path / "run" / "config.toml").exists()


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    asked = settings(name="run")
    run = leave(tmp_path, asked, 10)
    found = find(asked, "auto", tmp_path, run_id="new")
    with locked(run), pytest.raises(ConfigError, match="is in use"), begin(asked, found, tmp_path, name="", run_id=""):
        pass


@pytest.mark.parametrize("resume", ["auto", "PATH"])
def test_what_somebody_still_works_on_is_not_read(tmp_path: Path, resume: str) -> None:
    """Else the checkpoint that is written meanwhile would be set aside."""
    asked = settings(name="run")
    run = leave(tmp_path, asked, 10)
    with locked(run), pytest.raises(ConfigError, match="is in use"):
        find(asked, resume.replace("PATH", str(run)), tmp_path, run_id="new")


def test_one_that_was_killed_before_anything_was_in_its_directory_begins_there(tmp_path: Path) -> None:
    """Else its name would be taken for ever, and every restart would begin at step 0 somewhere else."""
    asked = settings(name="run")
    (tmp_path / "run").mkdir()
    assert found_in(tmp_path, asked) == "run/None, run new"
    (tmp_path / "run" / ".partial-config.toml").write_text("workers = ")
    found = find(asked, "auto", tmp_path, run_id="new")
    with begin(asked, found, tmp_path, name="run", run_id="new") as beginning:
        assert beginning.directory == tmp_path / "run"
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("not a run")
    assert found_in(tmp_path, settings(name="theirs")) == "nothing"


def test_the_checkpoint_that_was_evaluated_best_is_kept_and_named(tmp_path: Path) -> None:
    asked = settings(checkpoint__keep=2)
    keeper = keeper_in(tmp_path, asked, "abc")
    losses = {10: 0.5, 20: 0.3, 30: float("nan"), 40: 0.4, 50: 0.35}
    said = []
    for step, loss in losses.items():
        said.append(keeper.write(progress(step), model_file))
        keeper.evaluated(EvalRecord(step, 1.0, loss, None, 0.1))
    assert said[2:] == [
        "saved step_000030",
        "saved step_000040; step_000020 is kept, evaluated best",
        "saved step_000050; step_000020 is kept, evaluated best",
    ]
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step_000020", "step_000040", "step_000050"]
    keeper.evaluated(EvalRecord(50, 1.0, 0.1, None, 0.1))
    keeper.write(progress(60), model_file)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_000050", "step_000060"]


def test_a_new_run_begins_at_nothing(tmp_path: Path) -> None:
    with begin(settings(), None, tmp_path, name="run", run_id="abc") as beginning:
        assert beginning == Beginning(tmp_path / "run", "abc", events=(made_with(0.0),))
        assert config.loads((tmp_path / "run" / "config.toml").read_text()) == settings()


def test_records_are_on_disk_before_the_checkpoint_that_needs_them(tmp_path: Path) -> None:
    there: list[bool] = []
    path = tmp_path / "checkpoints" / "step_000010"
    keeper = Keeper(
        settings(), tmp_path, run_id="abc", coefficients_NC=np.ones((4, 1)), sync=lambda: there.append(path.exists())
    )
    keeper.write(progress(10), model_file)
    assert there == [False] and path.exists()


def test_one_checkpoint_that_is_named_must_be_whole(tmp_path: Path) -> None:
    run = leave(tmp_path, settings(), 10, 20)
    path = run / "checkpoints" / "step_000020"
    (path / "model.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"step_000020 is damaged: model\.bin"):
        find(settings(), str(path), tmp_path, run_id="new")


def test_a_run_whose_checkpoints_are_all_damaged_is_left_as_it_is(tmp_path: Path) -> None:
    """To begin again would throw away records, of all times when storage is bad."""
    asked = settings(name="run")
    directory = leave(tmp_path, asked, 10, 20)
    (directory / "steps.jsonl").write_text("records\n")
    for model in directory.glob("checkpoints/*/model.bin"):
        model.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"all checkpoints of .*run are damaged"):
        find(asked, "auto", tmp_path, run_id="new")
    assert (directory / "steps.jsonl").read_text() == "records\n"
    assert len(list(directory.glob("checkpoints/step_*"))) == 2
