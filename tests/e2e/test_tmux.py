"""The programs in a real terminal, with a shell around them: resizes, job control, viewers that are killed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BIN, environment

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

SETTINGS = ["task.name=soak", "workers=2", "scheme.name=dgd", "name=run", "steps=1000000", "delay.model=constant"]
RUN = " ".join(["pgc local", *(f"--set {setting}" for setting in [*SETTINGS, "delay.mean=0.02"])])
PATIENCE = 60.0  # only guards against a hang


class Tmux:
    """A tmux server of its own with one window, in which a shell waits in ``directory``."""

    def __init__(self, directory: Path, width: int = 80, height: int = 24) -> None:
        self.directory = directory
        self._socket = str(directory / "tmux")
        (directory / "shell").write_text(f"PS1='$ '; PATH={BIN}:$PATH; cd {directory}\n")
        size = ["-x", str(width), "-y", str(height)]
        self.call("-f", "/dev/null", "new-session", "-d", *size, f"bash --noprofile --rcfile {directory / 'shell'}")
        self.call("set-option", "-g", "window-size", "manual")
        self.until(lambda: self.screen.startswith("$"))

    def call(self, *words: str) -> str:
        """One tmux command; what it printed."""
        kept = environment() | {"LC_ALL": "C.UTF-8"}
        kept.pop("TMUX", None)
        done = subprocess.run(["tmux", "-S", self._socket, *words], env=kept, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def enter(self, command: str) -> None:
        """Type a command."""
        self.call("send-keys", "-l", command)
        self.call("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Type one key, as tmux calls it."""
        self.call("send-keys", key)

    def resize(self, width: int, height: int) -> None:
        """Make the window so large."""
        self.call("resize-window", "-x", str(width), "-y", str(height))

    @property
    def screen(self) -> str:
        """What is to be seen."""
        return self.call("capture-pane", "-p")

    def until(self, condition: Callable[[], object]) -> None:
        """Look until the condition holds."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < limit, self.screen
            time.sleep(0.02)

    def until_seen(self, *texts: str) -> None:
        """Look until all of these are on the screen."""
        self.until(lambda: all(text in self.screen for text in texts))

    @property
    def steps(self) -> int:
        """Steps on record."""
        file = self.directory / "runs" / "run" / "steps.jsonl"
        return file.read_text().count("\n") if file.exists() else 0

    def close(self) -> None:
        """End it and all in it, if that has not been done."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    opened = Tmux(tmp_path)
    yield opened
    opened.close()


def test_resizes_and_leaving_do_no_harm_to_a_run(tmux: Tmux) -> None:
    tmux.enter(f"{RUN}; echo code $?")
    tmux.until_seen("dgd s=0  soak  2 workers", "learning ─", "step ─", "workers ─", " leave ")
    for width, height in ((200, 60), (40, 10), (1, 1), (3, 2), (120, 40)):
        before = tmux.steps
        tmux.resize(width, height)
        tmux.until(lambda before=before: tmux.steps > before + 5)  # type: ignore[misc]
    tmux.until_seen("events ─", "2 workers", " leave ")
    lines = tmux.screen.splitlines()
    assert max(map(len, lines)) == 120
    assert len(lines) == 40
    tmux.press("q")
    tmux.until_seen("the view is closed, the run goes on")
    before = tmux.steps
    tmux.until(lambda: tmux.steps > before + 20)
    tmux.press("C-c")
    tmux.until_seen("interrupted by SIGINT", "code 75")


def test_ctrl_z_and_fg(tmux: Tmux) -> None:
    tmux.enter(RUN)
    tmux.until_seen(" leave ", "workers ─")
    tmux.press("C-z")
    tmux.until_seen("Stopped", "$ ")
    assert " leave " not in tmux.screen
    tmux.enter("stty -a | tr ' ' '\\n' | grep -c -e '^icanon' -e '^echo$'")
    tmux.until(lambda: "\n2\n" in tmux.screen)  # keys are typed and shown as ever
    before = tmux.steps
    tmux.enter("fg")
    tmux.until_seen(" leave ", "workers ─")
    tmux.until(lambda: tmux.steps > before + 20)
    tmux.press("C-c")
    tmux.until_seen("interrupted by SIGINT", "exit code 75")


def test_a_run_in_the_background_tells_lines_until_it_is_looked_at(tmux: Tmux) -> None:
    tmux.enter(f"{RUN} &")
    tmux.until_seen("worker 1 is ready")
    before = tmux.steps
    tmux.until(lambda: tmux.steps > before + 20)  # nothing has stopped it
    assert " leave " not in tmux.screen
    tmux.enter("fg")
    tmux.until_seen(" leave ", "workers ─")
    tmux.press("C-c")
    tmux.until_seen("exit code 75")


def test_a_viewer_that_is_killed_does_no_harm_to_a_run(tmux: Tmux) -> None:
    tmux.enter(f"{RUN} --ui none & clear")
    tmux.until(lambda: tmux.steps > 5)
    tmux.enter("pgc top runs/run & fg")
    tmux.until_seen("dgd s=0  soak  2 workers", "workers ─", " leave ")
    viewers = subprocess.run(["pgrep", "-f", "pgc top runs/run"], capture_output=True, text=True).stdout.split()
    for viewer in viewers:
        if Path(f"/proc/{viewer}/cwd").resolve() == tmux.directory.resolve():
            os.kill(int(viewer), signal.SIGKILL)
    before = tmux.steps
    tmux.until(lambda: tmux.steps > before + 20)
    tmux.enter("kill %1; wait %1; echo code $?")
    tmux.until_seen("code 75")


def test_a_window_that_is_closed_ends_a_run_in_order(tmux: Tmux) -> None:
    tmux.enter(RUN)
    tmux.until_seen(" leave ", "workers ─")
    tmux.until(lambda: tmux.steps > 5)
    tmux.close()  # a hangup is a signal to end, with a checkpoint
    result = tmux.directory / "runs" / "run" / "result.json"
    limit = time.monotonic() + PATIENCE
    while not result.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert '"exit":75' in result.read_text()
