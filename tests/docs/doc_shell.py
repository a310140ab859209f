"""Runs the shell blocks of a page, from top to bottom, as one reader would: in a copy of the checkout.

What the comment above a block may say, parted by semicolons:

    PGC_STEPS=5        environment of this block, so that the commands stay as they are and the run is short
    exits 75           the block's last command ends with this code; 0 unless said
    background         the block runs beside what follows; the page's end waits for it
    until 5555         what follows waits until something listens on this port of 10.0.0.5
    on vm-0            the block runs in a directory that stands for another machine

The page has a network of its own where the system lets us make one (``unshare``), with the address 10.0.0.5, so that
ports are free and addresses mean something. ``ssh`` and ``scp`` are stand-ins: a machine is a directory.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from doc_pages import ROOT, Block

SECONDS_AT_MOST = 200
COPIED = ("README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "configs", "examples", "bin")
ADDRESS = "10.0.0.5"
_SETTING = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_HEAD = """\
set -eu
beside=()
mkdir -p "$HOSTS"
"""
_TAIL = """
for one in "${beside[@]}"; do wait "$one"; done
"""


def script(blocks: list[Block]) -> str:
    """The page as a program for bash; echoes every line as it reads it."""
    return _HEAD + "\n".join(_piece(block) for block in blocks if block.language == "sh" or block.file) + _TAIL


def _piece(block: Block) -> str:
    if block.file:
        return f"cat > '{block.file}' <<'END OF {block.file}'\n{block.text}END OF {block.file}\n"
    settings = [part for mark in block.marks for part in mark.split() if _SETTING.fullmatch(part)]
    host, code, port = (_behind(word, block.marks) for word in ("on ", "exits ", "until "))
    body = block.text
    if code is not None:
        body = (
            f'set +e\n{body}code=$?\nset -e\n[ $code = {code} ] || {{ echo "exit code $code, not {code}"; exit 1; }}\n'
        )
    if settings:
        names = " ".join(setting.partition("=")[0] for setting in settings)
        body = f"export {' '.join(settings)}\n{body}unset {names}\n"
    if host is not None:
        body = f'(\nmkdir -p "$HOSTS/{host}"; cd "$HOSTS/{host}"\n{body})'
    if "background" in block.marks:
        body = f"(\n{body}) &\nbeside+=($!)"
    if port is not None:
        body += f"\nuntil (: < /dev/tcp/{ADDRESS}/{port}) 2> /dev/null; do sleep 0.1; done"
    return f"# line {block.line}\n{body}\n"


def _behind(word: str, marks: tuple[str, ...]) -> str | None:
    return next((mark.removeprefix(word) for mark in marks if mark.startswith(word)), None)


def marks_that_mean_nothing(block: Block) -> list[str]:
    """Parts of the comment above a block that nobody reads."""
    known = re.compile(rf"background|until \d+|on [a-z0-9-]+|exits \d+|{_SETTING.pattern}(\s+{_SETTING.pattern})*")
    return [mark for mark in block.marks if not known.fullmatch(mark)]


@cache
def network() -> tuple[str, ...]:
    """The words before a command that give it a network of its own; none where the system does not let us."""
    unshare = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--net", "--map-root-user")
    if not (shutil.which("unshare") and shutil.which("ip")):
        return ()
    prepared = (*unshare, "sh", "-c", f'ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec "$@"', "sh")
    done = subprocess.run([*prepared, "true"], capture_output=True, check=False)
    return prepared if done.returncode == 0 else ()


def checkout(directory: Path) -> Path:
    """A copy of what a reader has in front of them."""
    ignored = shutil.ignore_patterns("__pycache__", "runs", "data", "*.pyc")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / "pgczmq" / name, ignore=ignored)
        else:
            (directory / "pgczmq").mkdir(exist_ok=True)
            shutil.copy(ROOT / name, directory / "pgczmq" / name)
    return directory / "pgczmq"


def run(blocks: list[Block], directory: Path) -> tuple[int, str]:
    """Run a page's blocks; the exit code, and all that was printed, every command before its output.

    Args:
        directory: empty; the copy, the machines and a home are made in it.
    """
    top, stand_ins = checkout(directory), Path(__file__).parent / "stand_ins"
    (directory / "page.sh").write_text(script(blocks))
    (directory / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PGC_", "PYTEST"))} | {
        "PATH": os.pathsep.join([str(stand_ins), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(directory / "home"),
        "HOSTS": str(directory / "hosts"),
        "COLUMNS": "120",
    }
    with (directory / "printed").open("w+") as printed:
        process = subprocess.Popen(
            [*network(), "bash", "-v", str(directory / "page.sh")],
            cwd=top,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=SECONDS_AT_MOST)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            _end(process.pid)
            process.wait()
        printed.seek(0)
        return code, printed.read()


def _end(group: int) -> None:
    """Whatever the page left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
