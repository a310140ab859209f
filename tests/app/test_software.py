"""What a run is made with."""

import platform

import numpy as np
import pytest
import torch

from pgczmq.app import software


def test_a_record_names_what_results_depend_on() -> None:
    record = software.made_with(2.5)
    assert (record.kind, record.at, record.worker) == ("software", 2.5, None)
    versions, machine = record.text.split(" on ")
    found = dict(part.split(" ") for part in versions.split(", "))
    assert found["numpy"] == np.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["Python"] == platform.python_version()
    assert {"pgczmq", "torchvision", "scikit-learn", "pyzmq"} <= found.keys()
    assert machine == f"{platform.system()} {platform.machine()}"


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "_PACKAGES", ("numpy", "no-such-package"))
    software._made_with.cache_clear()
    assert software.made_with(0.0).text.startswith(f"numpy {np.__version__}, Python ")
    software._made_with.cache_clear()
