"""The helper that loads torch must not hear Ctrl+C: it has nothing to say about it, least of all a traceback."""

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
