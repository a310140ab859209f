"""Shell scripts and systemd units of the whole project, as the tools see them that know these best."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgczmq.app.worker import INTERRUPTED
from pgczmq.errors import AuthenticationFailed, ConfigError, JoinRefused

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "examples" / "clusters"
SCRIPTS = sorted(
    path
    for folder in ("bin", ".ci", "examples", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.is_file()
    and path.read_bytes()[:30].startswith((b"#!/usr/bin/env bash", b"#!/bin/sh", b"#!/bin/bash", b"# shellcheck"))
)
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")


def test_the_scripts_are_found() -> None:
    assert {"demo", "_common.sh", "run", "launch-ssh", "slurm.sbatch"} <= {path.name for path in SCRIPTS}


def test_shellcheck_has_nothing_to_say() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    command = [str(shellcheck), "--external-sources", "--source-path=SCRIPTDIR", *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(CLUSTERS / name)
    return parser["Service"]


def codes(text: str) -> set[int]:
    return {int(word) for word in text.split()}


def test_systemd_starts_again_what_may_come_out_otherwise() -> None:
    worker, master = unit("pgc-worker.service"), unit("pgc-master.service")
    never = {ConfigError.exit_code, JoinRefused.exit_code, AuthenticationFailed.exit_code}
    assert codes(worker["RestartPreventExitStatus"]) == never
    assert codes(master["RestartPreventExitStatus"]) == {ConfigError.exit_code}
    assert codes(master["RestartForceExitStatus"]) == {INTERRUPTED}
    assert worker["Restart"] == master["Restart"] == "on-failure"
    assert not codes(worker["SuccessExitStatus"]) & {INTERRUPTED}


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", ["pgc-worker.service", "pgc-master.service"])
def test_systemd_takes_the_units(name: str, tmp_path: Path) -> None:
    assert SYSTEMD_ANALYZE is not None
    installed = tmp_path / name
    installed.write_text((CLUSTERS / name).read_text().replace("/opt/pgczmq/bin", str(Path(sys.executable).parent)))
    done = subprocess.run([SYSTEMD_ANALYZE, "verify", str(installed)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
