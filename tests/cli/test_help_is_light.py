"""Help comes at once: no command's help loads what only running it needs. How long it takes is seen by hand."""

import subprocess
import sys

# typer itself may load pydantic; the configuration's models are what would take long.
HEAVY = ("torch", "torchvision", "sklearn", "zmq", "msgspec", "numpy", "matplotlib", "rich.live", "pgczmq.config")
ASK_ALL = """
import contextlib, io, sys
import typer
from pgczmq.cli import main, runs

def ask(command, path):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            command.main([*path[1:], "--help"], prog_name=path[0])
        except SystemExit as end:
            assert end.code == 0, path
    assert "Usage: " + path[0] in said.getvalue(), path
    print(*path)

def walk(command, root, path):
    ask(root, path)
    for name, inner in getattr(command, "commands", {}).items():
        walk(inner, root, [*path, name])

programs = {"pgc": main.pgc, "pgc-master": main.single(runs.master), "pgc-worker": main.single(runs.worker)}
for name, app in programs.items():
    command = typer.main.get_command(app)
    walk(command, command, [name])
print("loaded:", *(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_the_help_of_every_command_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", ASK_ALL, *HEAVY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *asked, loaded = done.stdout.splitlines()
    assert loaded == "loaded:"
    assert {"pgc", "pgc local", "pgc bench transport", "pgc torture matrix", "pgc-master", "pgc-worker"} <= set(asked)
