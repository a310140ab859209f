"""The helper that loads torch must not hear Ctrl+C: it has nothing to say about it, least of all a traceback.

Nor does it stay when whoever heard it has left.
"""

import signal
import subprocess
import sys

HELPER = """
from multiprocessing import forkserver
from pathlib import Path
from pgczmq.app import processes
processes.start_helper("soak")
status = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text()
masks = dict(line.split(":\\t") for line in status.splitlines() if line.startswith("Sig"))
print((int(masks["SigBlk"], 16) | int(masks["SigIgn"], 16)) >> 1 & 1)
"""


def test_the_helper_is_deaf_to_ctrl_c_from_its_first_moment() -> None:
    done = subprocess.run([sys.executable, "-c", HELPER], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n", done.stderr


def test_the_helper_does_not_outlive_a_program_that_leaves_at_once() -> None:
    """By itself it would load everything first, with the program's output in its hands."""
    code = (
        "import os; from multiprocessing import forkserver; from pgczmq.app import processes\n"
        "processes.start_helper(); helper = forkserver._forkserver._forkserver_pid; processes.end_helper()\n"
        "print(os.WTERMSIG(os.waitpid(helper, 0)[1]), flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{int(signal.SIGKILL)}\n", "")
