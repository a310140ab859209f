"""The account of a closed step, against a dense matrix product and plain loops."""

import math

import numpy as np
import pytest
from core_oracles import cyclic_support, repeatable, share
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core.closing import close, fresh_losses, shares
from pgczmq.core.decoders import Weights
from pgczmq.core.events import Arrived
from pgczmq.core.open_step import OpenStep
from pgczmq.core.policies import Plan
from pgczmq.core.schemes import Scheme, Settings, build


def arrived(worker: int, ages: tuple[int, ...], losses: tuple[tuple[int, float], ...], at: float = 101.0) -> Arrived:
    return Arrived(worker, "a", 7, ages, losses, 1.0, at)


def opened(*answers: Arrived) -> OpenStep:
    step = OpenStep(7, Plan(3, 0.5), opened_at=100.0, origin=0.0)
    for answer in answers:
        step.take(answer)
    return step


PGC = build(Settings(name="pgc-cr", workers=4, stragglers=1))


def test_everything_is_aligned_with_the_used_workers_by_number() -> None:
    step = opened(
        arrived(3, (0, 4), ((3, 1.0),), 101.0), arrived(0, (2, 0), ((1, 5.0),), 102.0), arrived(2, (1, 3), (), 103.0)
    )
    account = close(PGC, step, Weights((3, 0), (0.4, 0.1)), 104.0)
    assert (account.step, account.published_at, account.closed_at) == (7, 100.0, 104.0)
    assert (account.k, account.batch_fraction) == (3, 0.5)
    assert (account.arrived, account.arrived_at) == ((3, 0, 2), (101.0, 102.0, 103.0))
    assert (account.used, account.weights, account.ages) == ((0, 3), (0.1, 0.4), ((2, 0), (0, 4)))
    assert (account.spare, account.missing) == ((2,), (1,))
    assert (account.loss, account.fresh) == (3.0, 2)


def test_a_worker_whose_weight_is_zero_is_spare() -> None:
    step = opened(arrived(0, (0, 0), ()), arrived(1, (0, 0), ()))
    account = close(PGC, step, Weights((0, 1), (0.0, 0.5)), 104.0)
    assert (account.used, account.spare, account.ages) == ((1,), (0,), ((0, 0),))


def test_the_loss_is_the_mean_over_distinct_fresh_partitions_of_all_arrivals() -> None:
    step = opened(
        arrived(0, (0, 0), ((0, 1.0), (1, 2.0))), arrived(1, (0, 0), ((1, 2.0), (2, 6.0))), arrived(3, (1, 2), ())
    )
    account = close(PGC, step, Weights((0, 1, 3), (1 / 6,) * 3), 104.0)
    assert (account.fresh, account.loss) == (3, 3.0)
    assert fresh_losses(step.answers) == {0: 1.0, 1: 2.0, 2: 6.0}


def test_a_loss_that_is_not_a_number_is_left_out_of_the_mean_and_alone_gives_nan() -> None:
    step = opened(arrived(0, (0, 1), ((0, math.nan),)), arrived(1, (0, 1), ((1, 2.0),)))
    account = close(PGC, step, Weights((0, 1), (0.25, 0.25)), 104.0)
    assert (account.loss, account.fresh) == (2.0, 2)
    step = opened(arrived(0, (0, 1), ((0, math.inf),)))
    assert math.isnan(close(PGC, step, Weights((0,), (0.5,)), 104.0).loss)
    step = opened(arrived(0, (1, 1), ()))
    account = close(PGC, step, Weights((0,), (0.5,)), 104.0)
    assert math.isnan(account.loss)
    assert account.fresh == 0


@pytest.mark.parametrize(("used", "recovered"), [((0,), 0.5), ((0, 1), 0.75), ((0, 2), 1.0), ((0, 1, 2, 3), 1.0)])
def test_recovered_is_the_fraction_of_partitions_in_the_estimate(used: tuple[int, ...], recovered: float) -> None:
    step = opened(*(arrived(worker, (0, 0), ()) for worker in used))
    account = close(PGC, step, Weights.uniform(used, 1 / (2 * len(used))), 104.0)
    assert account.recovered == recovered
    assert account.max_alpha == pytest.approx(4 / (2 * len(used)))


SCHEMES = [
    build(Settings(name="pgc-cr", workers=7, stragglers=2)),
    build(Settings(name="gc-cr", workers=7, stragglers=2)),
    build(Settings(name="gc-fr", workers=6, stragglers=2)),
    build(Settings(name="is-gc-hr", workers=8, load=3, local_load=2, groups=2)),
]


@repeatable
@given(
    scheme=st.sampled_from(SCHEMES), values=st.dictionaries(st.integers(0, 5), st.floats(-5, 5), min_size=1, max_size=6)
)
def test_shares_and_the_largest_alpha_are_those_of_the_dense_product(scheme: Scheme, values: dict[int, float]) -> None:
    weights = Weights(tuple(values), tuple(values.values()))
    found, alpha = shares(scheme, weights)
    encode = scheme.encode_NN()
    np.testing.assert_allclose(found, share(weights, encode), atol=1e-12)
    dense = [scheme.workers * abs(a) * np.abs(encode[worker]).max() for worker, a in values.items()]
    assert alpha == pytest.approx(max(dense))


def test_shares_of_nobody_are_zero() -> None:
    found, alpha = shares(PGC, Weights((), ()))
    np.testing.assert_array_equal(found, np.zeros(4))
    assert alpha == 0.0


def test_shares_of_the_whole_cluster_are_one() -> None:
    found, _ = shares(PGC, Weights.uniform(range(4), 1 / 8))
    np.testing.assert_allclose(found, cyclic_support(4, 2).sum(axis=0) / 2)


def test_recovered_counts_partitions_and_says_nothing_about_how_much_of_each() -> None:
    scheme = build(Settings(name="gc-cr", workers=7, stragglers=2))
    weights = scheme.decoder.partial((0, 1, 3), 0.0)
    assert weights is not None
    step = opened(*(arrived(worker, (0, 0, 0), ()) for worker in (0, 1, 3)))
    found, _ = shares(scheme, weights)
    assert np.abs(found - 1).max() > 0.2
    assert close(scheme, step, weights, 104.0).recovered == 6 / 7  # 6 is held by nobody of them
