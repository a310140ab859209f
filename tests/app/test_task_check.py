"""``pgc task check`` on tasks as people write them: what is sound passes, and what is wrong is said in words."""

import re
from dataclasses import replace

import pytest

from pgczmq import config
from pgczmq.app import task_check, testimony
from pgczmq.app.check import Check
from pgczmq.app.task_check import Examination
from pgczmq.app.task_memory import costs, master_bytes
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError


@pytest.fixture(autouse=True)
def _broken_tasks_can_be_imported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.syspath_prepend(request.path.parent)


def run_of(task: str, *given: str) -> RunConfig:
    return config.load(None, [f"task.name=broken_tasks:{task}", "workers=4", "task.batch_size=8", *given], {})


def wrong(task: str, *given: str) -> list[Check]:
    return [check for check in Examination(run_of(task, *given)).checks() if check.verdict != "ok"]


# ---------------------------------------------------------------- sound tasks


@pytest.mark.parametrize("task", ["sound", "augmented", "characters"])
def test_a_sound_task_passes_every_check(task: str) -> None:
    examination = Examination(run_of(task))
    checks = list(examination.checks())
    assert [check.name for check in checks] == (
        ["task", "model", "data", "batch size", "replicas", "gradient", "loss", "held out", "metric"]
    )
    assert {check.verdict for check in checks} == {"ok"}
    assert len(examination.seconds) == 4, "two partitions, two steps"


def test_numpys_float64_is_fine() -> None:
    assert wrong("arrays") == []


# ---------------------------------------------------------------- one thing wrong each


@pytest.mark.parametrize(
    ("task", "name", "verdict", "words"),
    [
        ("unseeded", "replicas", "problem", r"data are others each time .* its argument seed"),
        ("own_generator", "replicas", "problem", r"the data set gives another sample .* global streams"),
        ("drawing_transform", "replicas", "problem", r"transform gives another batch"),
        ("disobedient_augment", "replicas", "problem", r"augment gives another batch .* generator that it is given"),
        ("remembering", "replicas", "problem", r"keeps something from one evaluation to the next"),
        ("own_dropout", "replicas", "problem", r"a generator of its own"),
        ("missing_values", "data", "problem", r"NaN or infinity"),
        ("raw_bytes", "data", "warning", r"uint8 before transform: .* magnitude of 1\d\d; .* / 255"),
        ("pictures", "task", "problem", r"Got \(Image, int\)\. Pictures become tensors"),
        ("uneven", "task", "problem", r"\(Tensor\[4\], int\) and \(Tensor\[5\], int\)\. Pad, crop"),
        ("several_inputs", "task", "problem", r"Got \(dict, int\)\. Several inputs are one tensor"),
        ("in_order_only", "task", "problem", r"got Stream\. What can only be read in order"),
        ("loader", "task", "problem", r"got DataLoader\. Hand in its data set"),
        ("two_arrays", "task", "problem", r"got tuple\. .*TensorDataset\(inputs, targets\)"),
        ("few", "task", "problem", r"task\.batch_size is per partition .* Use at most 4\."),
        ("unused", "gradient", "warning", r"0 at every step for spare\.weight, spare\.bias"),
        ("clipping", "evaluation", "problem", r"Clipping writes to its own while a loss is computed"),
        ("clipping_later", "evaluation", "problem", r"though not the first time"),
        ("in_float64", "task", "problem", r"float64 in linear\.weight. Use model\.float\(\)"),
        ("sparse", "task", "problem", r"gradients are dense: the model is Embedding"),
        ("without_momentum", "task", "problem", r"momentum=None"),
        ("detached", "evaluation", "problem", r"torch\.no_grad\(\)"),
        ("misfit", "evaluation", "problem", r"cannot be multiplied .*\(.*broken_tasks\.py:\d+\)"),
        ("whole_features", "evaluation", "problem", r"same dtype.* The inputs are int64: transform="),
        ("tuple_out", "evaluation", "problem", r"Got a tuple from the model"),
        ("summed", "loss", "problem", r"there twice\. Use \.mean\(\)"),
        ("weighted", "loss", "warning", r"is not the mean of its halves'"),
        ("one_each", "evaluation", "problem", r"a scalar tensor: got shape \(8,\)"),
        ("a_number", "evaluation", "problem", r"a scalar tensor: got a float"),
        ("infinite", "loss", "problem", r"not a number: -inf"),
        ("numbers_as_classes", "evaluation", "problem", r"targets \(8,\), float32\. .*mse_loss"),
        ("percent", "metric", "warning", r"shown in percent and should be from 0 to 1"),
        ("counted", "metric", "warning", r"metric is a mean"),
        ("none_held_out", "held out", "warning", r"training loss alone"),
        ("held_out_is_trained_on", "held out", "warning", r"These are the training data"),
        ("nothing_held_out", "held out", "problem", r"is empty"),
        ("returns_a_model", "task", "problem", r"gave Plain"),
        ("large_targets", "data", "warning", r"targets have a mean magnitude of \d{3}"),
        ("one_class_more", "evaluation", "problem", r"to 1 where a model has 2 outputs: got targets from 1 to 2"),
        ("built_already", "task", "problem", r"Write model=lambda: Linear\(\.\.\.\)"),
        ("needs_more", "task", "problem", r"also needs root"),
        ("fails", "task", "problem", r"FileNotFoundError: data\.csv \(.*broken_tasks\.py:\d+\)"),
        ("absent", "task", "problem", r"has no function absent"),
    ],
)
def test_what_is_wrong_is_said_once_and_in_words(task: str, name: str, verdict: str, words: str) -> None:
    (check,) = wrong(task)
    assert (check.name, check.verdict) == (name, verdict)
    assert re.search(words, check.text), check.text


def test_what_torch_warns_of_is_passed_on_once() -> None:
    said = [check.text for check in wrong("broadcast") if check.name == "python says"]
    assert len(said) == 1 and "torch.Size([8])" in said[0] and "broadcasting" in said[0]


def test_a_learning_rate_that_is_too_large_is_named() -> None:
    (check,) = wrong("sound", "optimizer.lr=1e39")
    assert check.name == "loss" and "after a step with optimizer.lr=1e+39" in check.text


def test_samples_that_no_epoch_looks_at_are_worth_a_word() -> None:
    (check,) = wrong("sound", "task.batch_size=9")
    assert check.name == "batch size" and "leaves out 44%" in check.text and "task.batch_size=8" in check.text
    assert wrong("sound", "task.batch_size=9", "task.sampler=fixed-batch") == []


def test_the_replicas_check_is_what_finds_a_model_that_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken out, nothing else would."""
    monkeypatch.setattr("pgczmq.train.trial.Evaluation.same", lambda *_: True)
    assert wrong("remembering") == []


# ---------------------------------------------------------------- another process


def test_another_process_must_have_the_same() -> None:
    trial = testimony.trial_of(run_of("sound"), 0)
    here = testimony.testify(run_of("sound"), streams=7)
    assert testimony.other_process(trial, lambda: here).verdict == "ok"
    for field, verdict, words in (
        ("data", "problem", "other training data"),
        ("minibatch", "problem", "other training data"),
        ("params", "warning", "other parameters"),
        ("gradient", "problem", "another gradient"),
    ):
        there = replace(here, **{field: "else"})
        check = testimony.other_process(trial, lambda there=there: there)  # type: ignore[misc]
        assert check.verdict == verdict and words in check.text


def test_deterministic_runs_are_on_the_cpu_in_both_processes() -> None:
    run = run_of("sound", "deterministic=true", "device=cuda")
    trial, there = testimony.trial_of(run, 0), testimony.testify(run, streams=7)
    assert trial.flat.device.type == "cpu"
    assert testimony.other_process(trial, lambda: there).verdict == "ok"


def test_a_process_that_says_nothing_is_a_problem() -> None:
    def hear() -> testimony.Testimony:
        raise ConfigError("it ended with exit code 3")

    check = testimony.other_process(testimony.trial_of(run_of("sound"), 0), hear)
    assert (check.verdict, "exit code 3" in check.text) == ("problem", True)


def test_what_depends_on_hash_is_found_by_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(request.path.parent))
    checks = {check.name: check for check in task_check.examine(Examination(run_of("order_of_a_set")))}
    assert checks["replicas"].verdict == "ok", "within a process it cannot be seen"
    assert checks["processes"].verdict == "problem" and "order of a set" in checks["processes"].text


# ---------------------------------------------------------------- what it costs


def test_memory_and_evaluations_of_each_scheme() -> None:
    run = config.load(None, ["workers=6", "scheme.stragglers=2", "scheme.name=pgc-cr"], {})
    rows = {row.scheme: row for row in costs(run, parameters=1000, minibatch=10)}
    assert next(iter(rows)) == "pgc-cr" and len(rows) == 11
    assert (rows["pgc-cr"].load, rows["pgc-cr"].evaluations, rows["pgc-cr"].retained) == (3, 1, 12_000)
    assert rows["pgc-cr"].worker == 4000 * (1 + 1 + 3) + 30
    assert (rows["dgd"].load, rows["dgd"].evaluations, rows["dgd"].worker) == (1, 1, 8030)
    assert (rows["gc-fr"].load, rows["gc-fr"].evaluations) == (3, 3)


def test_a_scheme_that_cannot_be_says_why() -> None:
    run = config.load(None, ["workers=5", "scheme.stragglers=2", "scheme.name=is-sgd", "scheme.k=2"], {})
    rows = {row.scheme: row for row in costs(run, parameters=10, minibatch=0)}
    assert "divide workers" in rows["gc-fr"].why_not and not rows["is-sgd"].why_not


@pytest.mark.parametrize(
    ("optimizer", "vectors"), [("name=sgd", 0), ("momentum=0.9", 1), ("name=adam", 2), ("name=adamw", 2)]
)
def test_the_master_keeps_what_its_optimizer_keeps(optimizer: str, vectors: int) -> None:
    run = config.load(None, ["workers=4", f"optimizer.{optimizer}"], {})
    assert master_bytes(run, parameters=100) == 400 * (3 + vectors + 4)
