"""Places where a process waits as long as a file says so."""

import os
import threading
from pathlib import Path

from pgczmq.train import gates
from pgczmq.train.gates import Gates


def test_without_a_directory_there_are_no_gates() -> None:
    Gates("").go_through("apply", 3)


def test_a_gate_lets_earlier_steps_pass_and_whoever_waits_when_it_is_opened(tmp_path: Path) -> None:
    passage = Gates(str(tmp_path))
    passage.go_through("apply", 7)  # it was never closed
    gates.close(tmp_path, "apply", 5)
    passage.go_through("apply", 4)
    assert not gates.is_reached(tmp_path, "apply")

    one = threading.Thread(target=passage.go_through, args=("apply", 5))
    one.start()
    while not gates.is_reached(tmp_path, "apply"):
        assert one.is_alive()
    assert (tmp_path / "apply.reached").read_text() in {"", str(os.getpid())}  # it may be written this moment
    gates.open_again(tmp_path, "apply")
    one.join(60)
    assert not one.is_alive() and not gates.is_reached(tmp_path, "apply")
