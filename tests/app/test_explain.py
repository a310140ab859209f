"""`explain` against a step-by-step replay of the schedules and against the engine's own decisions."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from pgczmq import config as configuration
from pgczmq.app import explain as module
from pgczmq.app.build import scheme_of
from pgczmq.app.explain import explain
from pgczmq.config import RunConfig
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Apply, Arrived, Joined, Ready
from pgczmq.core.schemes import SCHEMES, Scheme, Settings
from pgczmq.core.schemes import build as build_scheme
from pgczmq.errors import ConfigError


def run_of(workers: int, name: str, **scheme: Any) -> RunConfig:
    return configuration.parse({"workers": workers, "scheme": {"name": name, **scheme}})


def replay(config: RunConfig, step: int) -> tuple[list[list[int]], list[list[int]]]:
    """(evaluates, ages) at ``step``, by walking through every step."""
    scheme = scheme_of(config)
    evaluates, ages = [], []
    for worker, held in enumerate(scheme.placement.held):
        evaluated: list[int | None] = [None] * scheme.load
        places: tuple[int, ...] = ()
        for now in range(step + 1):
            places = scheme.schedule.places(worker, now, evaluated)
            for place in places:
                evaluated[place] = now
        evaluates.append([held[place] for place in sorted(places)])
        ages.append([step - at for at in evaluated if at is not None])
    return evaluates, ages


def test_pgc_cr_with_four_workers_and_one_straggler() -> None:
    shown = explain(run_of(4, "pgc-cr", stragglers=1), step=5, arrived=[0, 1, 3])
    assert shown["scheme"] == "pgc-cr"
    assert (shown["workers"], shown["load"], shown["k"], shown["wait"]) == (4, 2, 3, "k")
    assert shown["placement"] == [[0, 1], [1, 2], [2, 3], [3, 0]]
    assert shown["encode"] == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    assert shown["evaluates"] == [[0], [1], [2], [3]]  # place (5 - 1) mod 2 = 0
    assert shown["ages"] == [[0, 1]] * 4
    assert shown["usable"] is True
    assert shown["closes_after"] == 3
    assert shown["weights"] == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6])
    # partition 0 is in the messages of 0 and 3, partition 1 of 0 and 1, 2 of 1, 3 of 3; each counts 4/6
    assert shown["share"] == pytest.approx([4 / 3, 4 / 3, 2 / 3, 2 / 3])
    assert shown["recovered"] == 1.0
    assert shown["max_alpha"] == pytest.approx(4 / 6)
    assert shown["max_alpha_code"] is None
    assert shown["ignored"] == []


def test_one_arrival_short_is_not_usable_and_everything_is_zero() -> None:
    shown = explain(run_of(4, "pgc-cr", stragglers=1), arrived=[2, 0])
    assert shown["usable"] is False
    assert shown["closes_after"] is None
    assert shown["weights"] == shown["share"] == [0.0] * 4
    assert shown["recovered"] == shown["max_alpha"] == 0.0
    assert explain(run_of(4, "pgc-cr"), arrived=[])["usable"] is False


def test_without_a_step_nothing_is_evaluated_and_without_arrivals_nothing_is_weighed() -> None:
    shown = explain(run_of(4, "dgd"))
    assert shown["step"] is shown["evaluates"] is shown["ages"] is None
    assert "usable" not in shown


@pytest.mark.parametrize("name", list(SCHEMES))
def test_every_scheme_is_plain_json_and_everybody_is_usable(name: str) -> None:
    shown = explain(run_of(6, name), step=3, arrived=range(6))
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["usable"] is True
    assert len(shown["weights"]) == len(shown["share"]) == 6
    held = [sorted(np.flatnonzero(row).tolist()) for row in np.array(shown["encode"])]
    assert held == [sorted(row) for row in shown["placement"]]
    assert all(set(done) <= set(row) for done, row in zip(shown["evaluates"], shown["placement"], strict=True))
    # every formula estimates a mean: the shares of the recovered partitions average 1 over what they are divided by
    assert np.mean(shown["share"]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", list(SCHEMES))
@pytest.mark.parametrize("stragglers", [0, 1, 2, 5])
def test_the_schedule_equals_a_replay_of_every_step(name: str, stragglers: int) -> None:
    config = run_of(6, name, stragglers=stragglers)
    for step in (0, 1, 2, 3, 4, 5, 6, 7, 12, 41):
        shown = explain(config, step=step)
        assert (shown["evaluates"], shown["ages"]) == replay(config, step)


@pytest.mark.parametrize("name", ["pgc-fr", "pgc-cr", "pgc-fr-staggered", "pgc-cr-naive"])
@pytest.mark.parametrize("max_age", [2, 3, 9])
def test_max_age_never_interferes_with_workers_that_are_on_time(name: str, max_age: int) -> None:
    config = run_of(6, name, stragglers=2, max_age=max_age)
    for step in [0, 1, 2, 3, 7, 100]:
        shown = explain(config, step=step)
        assert (shown["evaluates"], shown["ages"]) == replay(config, step)


def test_the_millionth_step_of_256_workers_is_cheap() -> None:
    config = run_of(256, "pgc-fr-staggered", stragglers=63)
    begun = time.perf_counter()
    shown = explain(config, step=1_000_000)
    assert time.perf_counter() - begun < 2
    assert all(sorted(ages) == list(range(64)) for ages in shown["ages"])
    assert sorted(done for (done,) in shown["evaluates"]) == list(range(256))  # staggered: all are fresh


# ---------------------------------------------------------------- usable, against the engine


def closes_with(scheme: Scheme, seed: int, arrived: Sequence[int]) -> Apply | None:
    """What the engine does when exactly these answer, in this order; None when it keeps waiting."""
    engine = Engine(scheme, Rules(steps=1, seed=seed), lambda *_: 0.0, 0.0)
    for worker in range(scheme.workers):
        engine.handle(Joined(worker, "a", 0.0))
    for worker in range(scheme.workers):
        engine.handle(Ready(worker, "a", 0.0))
    for worker in arrived:
        ages, losses = (0,) * scheme.load, ((worker, 1.0),)
        for command in engine.handle(Arrived(worker, "a", 0, ages, losses, 1.0, 1.0)):
            if isinstance(command, Apply):
                return command
    return None


@pytest.mark.parametrize("wait", ["k", "usable"])
@pytest.mark.parametrize("name", list(SCHEMES))
def test_usable_weights_and_accounts_are_the_engines(name: str, wait: str) -> None:
    config = run_of(6, name, stragglers=2 if name != "gc-cr" else 3, wait=wait)
    scheme = scheme_of(config)
    for count in range(1, 7):
        for arrived in combinations(range(6), count):
            order = arrived[::-1]
            shown = explain(config, step=0, arrived=order)
            applied = closes_with(scheme, config.seed, order)
            assert (shown["closes_after"] is not None) == (applied is not None)
            if applied is None or len(applied.closed.arrived) < count:
                continue  # it closed before the last of these
            assert shown["usable"] is True
            assert shown["closes_after"] == count
            assert [w for w in shown["weights"] if w] == pytest.approx(list(applied.closed.weights))
            assert shown["recovered"] == applied.closed.recovered
            assert shown["max_alpha"] == pytest.approx(applied.closed.max_alpha)


def test_wait_decides_whether_a_lucky_half_of_fractional_repetition_closes_the_step() -> None:
    lucky = [0, 3]
    assert explain(run_of(4, "gc-fr", wait="usable"), arrived=lucky)["usable"] is True
    shown = explain(run_of(4, "gc-fr"), arrived=[*lucky, 1])
    assert explain(run_of(4, "gc-fr"), arrived=lucky)["usable"] is False
    assert shown["weights"] == [0.25, 0.0, 0.0, 0.25]  # 1 is spare: 0 came first


def test_first_of_a_group_is_the_lowest_number_in_deterministic_mode() -> None:
    config = run_of(4, "gc-fr")
    assert explain(config, arrived=[1, 0, 3])["weights"] == [0.0, 0.25, 0.0, 0.25]
    fixed = config.model_copy(update={"deterministic": True})
    assert explain(fixed, arrived=[1, 0, 3])["weights"] == [0.25, 0.0, 0.0, 0.25]


def test_ties_are_broken_by_the_origin_of_the_step() -> None:
    config = run_of(4, "is-gc-cr", stragglers=1)
    seen = {tuple(explain(config, step=step, arrived=[0, 1, 2, 3])["weights"]) for step in range(20)}
    assert seen == {(0.25, 0.0, 0.25, 0.0), (0.0, 0.25, 0.0, 0.25)}
    assert explain(config, step=0, arrived=[0, 1, 2, 3])["weights"] == explain(config, arrived=[0, 1, 2, 3])["weights"]


def test_the_order_of_arrival_does_not_change_a_mean() -> None:
    config = run_of(4, "pgc-cr")
    weights = [explain(config, arrived=order)["weights"] for order in permutations([0, 2, 3])]
    assert all(row == weights[0] for row in weights)


# ---------------------------------------------------------------- settings


def test_settings_that_the_scheme_does_not_read_are_listed() -> None:
    assert explain(run_of(4, "dgd", stragglers=2, load=3))["ignored"] == ["scheme.stragglers", "scheme.load"]
    assert explain(run_of(4, "pgc-cr", wait="usable", max_age=7))["ignored"] == ["scheme.wait"]
    everywhere = explain(run_of(4, "dgd", shortfall="partial", on_new_step="abandon"))
    assert everywhere["ignored"] == []


def test_of_a_scheme_of_ones_own_that_does_not_say_what_it_reads_nothing_is_called_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for reads, ignored in ((None, []), (frozenset(), ["scheme.load"]), (frozenset({"load"}), [])):
        own = replace(build_scheme(Settings("dgd", 4)), reads=reads)
        monkeypatch.setattr(module, "scheme_of", lambda config, own=own: own)
        assert explain(run_of(4, "dgd", load=3))["ignored"] == ignored


def test_the_codes_conditioning_is_told() -> None:
    shown = explain(run_of(6, "gc-cr", stragglers=1))
    assert shown["code"] == "cyclic MDS"
    assert shown["max_alpha_code"] == pytest.approx(1.0)
    assert explain(run_of(6, "pgc-cr-naive"))["max_alpha_code"] is None


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("arrived", "sentence"),
    [
        ([0, 4], "arrivals are worker numbers from 0 to 3: got 4 in 0,4."),
        ([-1], "arrivals are worker numbers from 0 to 3: got -1 in -1."),
        ([2, 1, 2], "a worker arrives once in a step: got 2 twice in 2,1,2."),
    ],
)
def test_arrivals_that_cannot_be(arrived: list[int], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(run_of(4, "pgc-cr"), arrived=arrived)
    assert str(caught.value) == sentence


def test_a_negative_step_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"^steps are numbered from 0: got step -1\.$"):
        explain(run_of(4, "pgc-cr"), step=-1)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (run_of(4, "no-such"), "there is no scheme no-such"),
        (run_of(10, "gc-fr", stragglers=3), r"fractional repetition needs \(stragglers \+ 1\) to divide workers"),
        (run_of(4, "pgc-cr", stragglers=4), "at least one worker must be waited for"),
    ],
)
def test_an_impossible_scheme(config: RunConfig, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        explain(config)


# ---------------------------------------------------------------- a schedule of the user's own


@dataclass(frozen=True)
class EveryThird:
    """All places at step 0 and at every third step, else the first."""

    def places(self, worker: int, step: int, evaluated_at: Sequence[int | None]) -> tuple[int, ...]:
        return tuple(range(len(evaluated_at))) if step % 3 == 0 else (0,)


def own_scheme(settings: Settings) -> Scheme:
    return replace(build_scheme(replace(settings, name="pgc-cr")), schedule=EveryThird())


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(module, "scheme_of", lambda config: own_scheme(Settings("pgc-cr", config.workers)))
    return run_of(4, "pgc-cr")


def test_a_schedule_of_ones_own_is_replayed(own: RunConfig) -> None:
    shown = explain(own, step=5)
    assert shown["evaluates"] == [[0], [1], [2], [3]]
    assert shown["ages"] == [[0, 2]] * 4


def test_a_schedule_of_ones_own_is_not_replayed_for_minutes(own: RunConfig) -> None:
    with pytest.raises(ConfigError, match=r"got step 1000000, workers=4\. The last step that can be shown is 499999\."):
        explain(own, step=1_000_000)


def test_neither_torch_nor_zmq_is_needed() -> None:
    """`pgc explain` answers at once: importing torch alone takes seconds."""
    code = "import sys, pgczmq.app.explain, pgczmq.view.explain_view; print({'torch', 'zmq'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_numbers_are_finite_even_for_the_badly_conditioned_scheme() -> None:
    shown = explain(run_of(12, "pgc-cr-naive", stragglers=3), step=9, arrived=list(range(3, 12)))
    assert shown["usable"] is True
    assert all(math.isfinite(weight) for weight in shown["weights"])
