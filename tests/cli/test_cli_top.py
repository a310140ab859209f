"""``pgc top`` beside a run that has only just been typed."""

from pathlib import Path

import pytest

from pgczmq import config
from pgczmq.app import top as app
from pgczmq.app.following import Following
from pgczmq.app.resume import begin
from pgczmq.cli import top
from pgczmq.errors import ConfigError


@pytest.fixture(autouse=True)
def nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PGC_MASTER", raising=False)
    monkeypatch.setattr(app, "_answers", lambda host, port: False)


def test_a_run_that_begins_meanwhile_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin(config.parse({}), None, top.RUNS, name="new", run_id="abc")
    monkeypatch.setattr(top.time, "sleep", lambda seconds: run.__enter__())
    found = top._found(None, None)
    assert isinstance(found, Following)
    found.look()
    about = found.seen().picture.run
    assert about is not None
    assert about.name == "new"
    assert capsys.readouterr().err == "no run goes on here yet; waiting 10 s for one to begin\n"
    run.__exit__(None, None, None)


def test_none_is_waited_for_only_so_long_and_no_name_at_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "WAIT_SECONDS", -1.0)
    with pytest.raises(ConfigError, match="nothing to watch"):
        top._found(None, None)
    assert "no run goes on here yet" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no run has that name"):
        top._found("other", None)
    assert capsys.readouterr().err == ""
