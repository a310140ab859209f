"""The installed commands, as a person types them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "configs" / "digits.toml")


def pgc(*arguments: str, cwd: Path, program: str = "pgc", seconds: float = 120) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")} | {"COLUMNS": "200"}
    return subprocess.run(
        [str(BIN / program), *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("pgc", "--version"),  # helps are asked for in test_help_is_light.py
        ("pgc-master", "--help"),
        ("pgc-worker", "--version"),
    ],
    ids=" ".join,
)
def test_programs_load_nothing_heavy_to_say_what_they_are(arguments: tuple[str, ...], tmp_path: Path) -> None:
    program, *rest = arguments
    code = (
        "import sys, runpy\n"
        f"sys.argv = {[program, *rest]!r}\n"
        "try:\n"
        f"    runpy.run_path({str(BIN / program)!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print('LOADED', sorted({'torch', 'zmq', 'numpy', 'sklearn'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("LOADED []\n")
    assert "Usage" in done.stdout or "pgczmq" in done.stdout


def test_explain_as_the_readme_shows_it(tmp_path: Path) -> None:
    asked = "explain --set workers=4 --set scheme.name=pgc-cr --set scheme.stragglers=1 --step 5 --arrived 0,1,3"
    done = pgc(*asked.split(), "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "out.json").read_text())
    assert table["workers"] == 4 and table["load"] == 2
    assert table["placement"] == [[0, 1], [1, 2], [2, 3], [3, 0]]
    assert table["encode"] == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    assert table["evaluates"] == [[0], [1], [2], [3]]  # place (5 - 1) mod 2 = 0
    assert table["ages"] == [[0, 1]] * 4
    assert table["usable"] is True
    assert table["weights"] == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6])
    assert table["share"] == pytest.approx([4 / 3, 4 / 3, 2 / 3, 2 / 3])
    assert table["recovered"] == 1 and table["max_alpha"] == pytest.approx(2 / 3)
    assert "pgc-cr" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explain", "--set", "scheme.name=pgc-crr"), "there is no scheme pgc-crr. The nearest is pgc-cr."),
        (("explain", "--set", "workers=4", "--arrived", "0,9"), "got 9"),
        (("explain", "--arrived", "a,b"), "--arrived takes worker numbers"),
        (("explain", "--set", "scheme.straglers=1"), "The nearest is scheme.stragglers"),
        (("explain", "--config", "nowhere.toml"), "cannot read the configuration nowhere.toml"),
        (("local", "--set", "scheme.name=gc-fr", "--set", "workers=10", "--set", "scheme.stragglers=3"), "8 and 12"),
        (("local", "--set", "delay.workers=[99]"), "99"),
        (("local", "--set", "task.batch_size=999"), "task.batch_size"),
        (("local", "--set", "task.name=digits-ccn"), "digits-cnn"),
        (("local", "--set", "task.name=nowhere:nothing"), "cannot import nowhere"),
        (("report", "nowhere"), "a run is named by its directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = pgc(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and sentence in errors[0]
    assert done.stdout == ""


def test_a_master_on_a_network_must_be_meant(tmp_path: Path) -> None:
    done = pgc("--set", "net.bind=0.0.0.0", cwd=tmp_path, program="pgc-master")
    assert done.returncode == 2
    assert "--insecure" in done.stderr


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        done = pgc("--set", f"net.port={busy.getsockname()[1]}", cwd=tmp_path, program="pgc-master")
    assert done.returncode == 2, done.stderr
    assert "net.port=0" in done.stderr and "Traceback" not in done.stderr


def test_a_worker_without_a_master_gives_up_with_its_own_exit_code(tmp_path: Path) -> None:
    with socket.socket() as silent:  # bound, so that nobody else is there, and not listening
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        done = pgc("--master", f"tcp://127.0.0.1:{port}", "--master-timeout", "1", cwd=tmp_path, program="pgc-worker")
    assert done.returncode == 73
    assert "has not answered" in done.stderr and "Traceback" not in done.stderr


def test_programs_run_from_a_checkout(tmp_path: Path) -> None:
    for program in ("pgc-master", "pgc-worker"):
        done = subprocess.run([str(ROOT / "bin" / program), "--version"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("pgczmq "), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_master_and_a_worker_over_the_command_line_and_an_interrupt(number: signal.Signals, tmp_path: Path) -> None:
    settings = ["net.port=0", "workers=2", "scheme.name=dgd", "task.name=linear-regression", "name=run", "steps=100000"]
    options = [part for setting in settings for part in ("--set", setting)]
    with (tmp_path / "log").open("w") as log:
        master = subprocess.Popen([str(BIN / "pgc-master"), *options], cwd=tmp_path, stdout=log, stderr=log)
        try:
            port = _wait_for(lambda: _port(tmp_path / "log"))
            address = f"tcp://127.0.0.1:{port}"
            said = pgc("doctor", "--master", address, cwd=tmp_path)
            assert "this master runs" in said.stdout, said.stdout
            workers = [
                subprocess.Popen([str(BIN / "pgc-worker"), "--master", address], cwd=tmp_path, stdout=log, stderr=log)
                for _ in range(2)
            ]
            _wait_for(lambda: (tmp_path / "runs/run/steps.jsonl").stat().st_size // 5000)
            master.send_signal(number)
            assert master.wait(timeout=30) == 75
            assert [worker.wait(timeout=30) for worker in workers] == [75, 75]
        finally:
            master.kill()
            master.wait()
    result = json.loads((tmp_path / "runs/run/result.json").read_text())
    saved = sorted(path.name for path in (tmp_path / "runs/run/checkpoints").iterdir())
    assert saved[-1] == f"step_{result['steps']:06d}"


def test_a_configuration_that_stands_by_itself_is_answered_with_its_option(tmp_path: Path) -> None:
    done = pgc("local", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2 and "named with --config mine.toml" in done.stderr


def test_runs_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    done = pgc("local", "--set", "task.name=soak", "--ui", "none", cwd=tmp_path)
    assert done.returncode == 2 and "runs is a file" in done.stderr


def _port(log: Path) -> int | None:
    lines = [line for line in log.read_text().splitlines() if "listening on" in line]
    return int(lines[0].rpartition("port ")[2]) if lines else None


def _wait_for(look: Callable[[], int | None]) -> int:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")
