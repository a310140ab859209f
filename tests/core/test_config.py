"""One TOML file, overrides in their order, and errors that say what would work."""

import logging
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgczmq import config
from pgczmq.config import RunConfig, load, loads, parse
from pgczmq.errors import ClusterError, ConfigError, JoinRefused, MasterUnreachable, PgcError, WireError


def refusal(*values: str, environment: dict[str, str] | None = None, path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, values, environment or {})
    return str(caught.value)


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- defaults and round trips


def test_defaults_are_those_of_the_design() -> None:
    run = load(None, (), {})
    assert (run.name, run.workers, run.steps, run.seed, run.deterministic) == ("", 8, 600, 1, False)
    assert (run.device, run.threads) == ("auto", "auto")
    assert (run.task.name, run.task.batch_size, run.task.sampler) == ("digits-cnn", 21, "reshuffle")
    assert (run.scheme.name, run.scheme.stragglers, run.scheme.on_new_step) == ("pgc-cr", 1, "skip")
    assert (run.optimizer.name, run.optimizer.lr, run.eval.every) == ("sgd", 0.05, 100)
    assert (run.net.bind, run.net.port, run.net.step_timeout, run.net.start_timeout) == ("127.0.0.1", 5555, 600, 120)
    assert (run.net.heartbeat, run.net.nonfinite, run.net.security) == (2, "refuse", "auto")
    assert (run.net.payload, run.net.wire_dtype) == ("auto", "float32")
    assert (run.checkpoint.every, run.checkpoint.keep, run.ui.mode) == (200, 3, "auto")


def test_the_resolved_run_reads_back_as_the_same_run() -> None:
    given_ = ["workers=12", "threads=2", "task.args.width=16", "task.args.deep.er=[1, 2.5]", "delay.workers=[0, 3]"]
    run = load(None, [*given_, "scheme.load=4", 'name="a b"'], {})
    again = loads(run.to_toml())
    assert again == run
    assert again.task.args == {"width": 16, "deep": {"er": [1, 2.5]}}
    assert again.delay.workers == (0, 3)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    workers=st.integers(1, 4096),
    lr=st.floats(1e-300, 1e300),
    name=st.text(st.characters(blacklist_characters="/\\", blacklist_categories=["Cs", "Cc", "Zl", "Zp"])),
    seed=st.integers(0, 2**63 - 1),
    args=st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.text(max_size=5)),
)
def test_any_run_survives_being_written_and_read(
    workers: int, lr: float, name: str, seed: int, args: dict[str, object]
) -> None:
    table = {"workers": workers, "name": name, "seed": seed, "optimizer": {"lr": lr}, "task": {"args": args}}
    try:
        run = parse(table)
    except ConfigError:
        assert name in {".", ".."} or "\0" in name
        return
    assert loads(run.to_toml()) == run


def test_the_written_run_is_toml_without_empty_settings() -> None:
    table = tomllib.loads(load(None, (), {}).to_toml())
    assert "load" not in table["scheme"]
    assert table["scheme"]["name"] == "pgc-cr"


def test_a_run_is_frozen() -> None:
    run = load(None, (), {})
    with pytest.raises(ValueError, match="frozen"):
        run.workers = 3  # type: ignore[misc]


# ---------------------------------------------------------------- precedence


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, 'workers = 3\nsteps = 30\nseed = 300\n[scheme]\nname = "dgd"\nload = 3\n')
    environment = {"PGC_STEPS": "20", "PGC_SEED": "200", "PGC_SCHEME__NAME": "gc-fr"}
    run = load(path, ["seed=100", "scheme.name=gc-cr"], environment)
    assert (run.seed, run.steps, run.workers, run.eval.every) == (100, 20, 3, 100)
    assert (run.scheme.name, run.scheme.load) == ("gc-cr", 3)
    assert load(path, [], environment).scheme.name == "gc-fr"
    assert load(path, [], {}).scheme.name == "dgd"


def test_variables_of_other_programs_and_other_purposes_are_left_alone() -> None:
    others = {"PGC_MASTER": "tcp://x:1", "PGC_WORKER_ID": "3", "PGC_LOG_LEVEL": "info", "WORKERS": "5", "HOME": "/"}
    assert load(None, (), others) == load(None, (), {})


def test_a_misspelt_variable_of_a_section_is_refused() -> None:
    sentence = refusal(environment={"PGC_SCHEME__STRAGGLER": "2"})
    assert sentence == "there is no setting scheme.straggler. The nearest is scheme.stragglers."


def test_the_last_of_two_settings_of_one_key_wins() -> None:
    assert load(None, ["workers=3", "workers=5"], {}).workers == 5
    assert load(None, ["workers=5", "workers=3"], {}).workers == 3


# ---------------------------------------------------------------- --set


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scheme.name=gc-fr", "gc-fr"),
        ('scheme.name="gc-fr"', "gc-fr"),
        (" scheme.name = gc-fr ", "gc-fr"),
        ("scheme.name=mine:make=it", "mine:make=it"),
    ],
)
def test_text_needs_no_quotes_and_may_contain_equals_signs(text: str, expected: str) -> None:
    assert load(None, [text], {}).scheme.name == expected


def test_values_of_settings_are_toml() -> None:
    run = load(None, ["deterministic=true", "delay.workers=[1, 2]", "optimizer.lr=1e-3", "task.args={ a = 1 }"], {})
    assert (run.deterministic, run.delay.workers, run.optimizer.lr, run.task.args) == (True, (1, 2), 1e-3, {"a": 1})


@pytest.mark.parametrize("text", ["workers", "=3", "  =3", ""])
def test_a_setting_without_key_or_equals_sign_shows_how_it_is_written(text: str) -> None:
    sentence = refusal(text)
    assert "key=value, for example scheme.name=pgc-cr" in sentence
    assert repr(text) in sentence


def test_a_value_is_not_a_section_and_a_section_is_not_a_value() -> None:
    assert refusal("workers.x=3", path=None, environment={"PGC_WORKERS": "4"}) == (
        "workers.x cannot be set: workers is a value, not a section."
    )
    assert refusal("scheme=dgd") == "scheme is a section with keys of its own, not a value: got 'dgd'."
    assert refusal(environment={"PGC_TASK": "mnist"}).startswith("task is a section")


# ---------------------------------------------------------------- unknown keys


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("worker", "workers"),
        ("scheme.straglers", "scheme.stragglers"),
        ("lr", "optimizer.lr"),
        ("momentum", "optimizer.momentum"),
        ("stragglers", "scheme.stragglers"),
        ("net.heart_beat", "net.heartbeat"),
        ("batch_size", "task.batch_size"),
    ],
)
def test_an_unknown_key_is_told_the_nearest(key: str, nearest: str) -> None:
    assert refusal(f"{key}=1") == f"there is no setting {key}. The nearest is {nearest}."


@pytest.mark.parametrize(("key", "section"), [("optimiser.lr", "optimizer"), ("schem.name", "scheme")])
def test_an_unknown_section_is_told_the_nearest_section(key: str, section: str) -> None:
    assert refusal(f"{key}=1") == f"there is no setting {key.partition('.')[0]}. The nearest is {section}."


def test_a_key_like_no_other_is_told_the_sections() -> None:
    sentence = refusal("qqqqqq=1")
    assert sentence.startswith("there is no setting qqqqqq. Sections and keys: name, workers")
    assert "scheme" in sentence


def test_every_key_is_listed_once_and_can_be_named() -> None:
    names = list(config.keys())
    assert len(names) == len(set(names))
    assert {"workers", "threads", "task.args", "scheme.max_age", "delay.workers", "ui.mode"} <= set(names)
    assert all(section not in names for section in ("task", "scheme", "net", "ui"))


# ---------------------------------------------------------------- values that do not fit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers=0", "workers should be greater than or equal to 1: got 0."),
        ("workers=5000", "workers should be less than or equal to 4096: got 5000."),
        ("workers=2.5", "workers should be a valid integer"),
        ("workers=many", "workers should be a valid integer"),
        ("workers=true", "workers should not be true or false: got True."),
        ("steps=0", "steps should be greater than or equal to 1: got 0."),
        ("seed=-1", "seed should be greater than or equal to 0: got -1."),
        ("optimizer.lr=nan", "optimizer.lr should be a finite number: got nan."),
        ("optimizer.lr=inf", "optimizer.lr should be a finite number: got inf."),
        ("optimizer.lr=0", "optimizer.lr should be greater than 0: got 0."),
        ("optimizer.momentum=1", "optimizer.momentum should be less than 1: got 1."),
        ("net.port=70000", "net.port should be less than or equal to 65532: got 70000."),
        ("scheme.wait=always", "scheme.wait should be 'k' or 'usable': got 'always'."),
        ("scheme.on_new_step=wait", "scheme.on_new_step should be 'skip', 'abandon' or 'queue': got 'wait'."),
        ("scheme.k=0", "scheme.k should be greater than or equal to 1: got 0."),
        ("delay.workers=[-1]", "delay.workers should be numbers from 0 to 7 in a run of workers=8"),
        ("task.sampler=shuffle", "task.sampler should be 'reshuffle' or 'fixed-batch': got 'shuffle'."),
        ("threads=0", 'threads should be "auto" or at least 1: got 0.'),
        ("threads=few", "threads should be \"auto\" or at least 1: got 'few'."),
        ("name=a/b", "a run's name is the name of a directory and must not contain slashes: got 'a/b'."),
        ("name=a\nb", r"a run's name is shown on terminals and must not contain control characters: got 'a\nb'."),
    ],
)
def test_a_bad_value_is_named_with_what_was_given_and_what_would_work(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_delay_for_a_worker_that_does_not_exist_is_refused() -> None:
    sentence = refusal("workers=4", "delay.workers=[1, 4]")
    assert "delay.workers" in sentence
    assert "0 to 3" in sentence
    assert load(None, ["workers=4", "delay.workers=[1, 3]"], {}).delay.workers == (1, 3)


@pytest.mark.parametrize("text", ["workers = ", "[scheme", "a = 1\na = 2", "\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    assert refusal(path=path).startswith(f"{path} is not TOML: ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(path=tmp_path / "no.toml") == (
        f"cannot read the configuration {tmp_path / 'no.toml'}: No such file or directory. "
        "pgc init writes one to begin with."
    )
    assert refusal(path=tmp_path).startswith(f"cannot read the configuration {tmp_path}: ")


def test_text_from_the_master_that_is_not_toml_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="the run configuration is not TOML"):
        loads("workers = = 3")
    with pytest.raises(ConfigError, match="there is no setting wokers"):
        loads("wokers = 3")


def test_a_table_where_a_value_belongs_is_refused_by_name(tmp_path: Path) -> None:
    assert refusal(path=write(tmp_path, "[workers]\nx = 1\n")).startswith("workers should be a valid integer")
    assert refusal(path=write(tmp_path, "[[scheme]]\nname = 'dgd'\n")).startswith("scheme is a section")


# ---------------------------------------------------------------- errors and exit codes


def test_errors_carry_the_documented_exit_codes() -> None:
    codes = {ConfigError: 2, ClusterError: 74, JoinRefused: 71, MasterUnreachable: 73, WireError: 70}
    assert {kind: kind("x").exit_code for kind in codes} == codes
    assert all(issubclass(kind, PgcError) for kind in codes)
    assert issubclass(JoinRefused, ClusterError)


def test_the_run_model_is_what_the_file_holds() -> None:
    assert isinstance(parse({}), RunConfig)
    assert parse({}) == load(None, (), {})


# ---------------------------------------------------------------- what the environment cannot say


def test_a_variable_that_nobody_reads_is_named_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"PGC_STEP": "3", "PGC_SCHEME_NAME": "dgd", "PGC_OF_A_LAUNCHER": "", "PGC_SEED": "5", "PGC_ALLOW": ""}
    with caplog.at_level(logging.WARNING):
        assert load(None, (), environment) == load(None, ["seed=5"], {})
    launcher, scheme, step = caplog.messages
    assert "PGC_OF_A_LAUNCHER" in launcher and "nearest" not in launcher
    assert scheme.endswith("The nearest is PGC_SCHEME__NAME.") and step.endswith("The nearest is PGC_STEPS.")


def test_a_name_from_a_locale_without_umlauts_is_read_as_the_bytes_it_was() -> None:
    assert load(None, ["name=Lauf \udcc3\udcbc"], {}).name == "Lauf ü"
