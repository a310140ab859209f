"""Every scheme on every arrival pattern: usable exactly when schemes.md section 2 says, shares by matrix product."""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from core_oracles import (
    all_subsets,
    builds,
    cyclic_support,
    fractional_support,
    identity_support,
    repeatable,
    share,
    vector,
)
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core import codes
from pgczmq.core.codes import Code
from pgczmq.core.decoders import LinearDecoder
from pgczmq.core.schemes import SCHEMES, Scheme

SIZES = [(n, s) for n in range(1, 9) for s in range(min(4, n))]
FRACTIONAL = ("gc-fr", "pgc-fr", "pgc-fr-staggered")


def orders(arrived: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ascending, descending and two shuffles."""
    yield arrived
    yield arrived[::-1]
    for seed in (1, 2):
        yield tuple(np.random.default_rng([seed, *arrived]).permutation(arrived).tolist())


def every_group_has_one(arrived: Sequence[int], workers: int, load: int) -> bool:
    return all(set(range(first, first + load)) & set(arrived) for first in range(0, workers, load))


@cache
def built(name: str, workers: int, stragglers: int, load: int | None = None) -> Scheme | None:
    return builds(name=name, workers=workers, stragglers=stragglers, load=load)


@pytest.mark.parametrize("name", FRACTIONAL)
@pytest.mark.parametrize(("workers", "stragglers"), SIZES)
def test_fractional_schemes_decode_exactly_when_every_group_has_an_arrival(
    name: str, workers: int, stragglers: int
) -> None:
    load = stragglers + 1
    scheme = built(name, workers, stragglers)
    assert (scheme is None) == (workers % load != 0)
    if scheme is None:
        return
    encode = fractional_support(workers, load)
    np.testing.assert_array_equal(scheme.encode_NN(), encode)
    for arrived in all_subsets(workers):
        for order in orders(arrived):
            weights = scheme.decoder.weights(order, 0.3)
            assert (weights is not None) == every_group_has_one(arrived, workers, load)
            if weights is not None:
                assert set(weights.workers) <= set(arrived)
                np.testing.assert_allclose(share(weights, encode), 1, atol=1e-6)


@pytest.mark.parametrize("name", ["gc-fr", "pgc-fr"])
def test_the_first_arrival_of_a_group_is_used_whatever_its_number(name: str) -> None:
    scheme = built(name, 6, 2)
    assert scheme is not None
    for order in itertools.permutations(range(6)):
        weights = scheme.decoder.weights(order, 0.0)
        assert weights is not None
        firsts = {next(w for w in order if w < 3), next(w for w in order if w >= 3)}
        assert set(weights.workers) == firsts
        assert weights.values == (1 / 6, 1 / 6)


def test_staggered_uses_every_arrival_with_the_mean_of_its_group() -> None:
    scheme = built("pgc-fr-staggered", 6, 2)
    assert scheme is not None
    weights = scheme.decoder.weights((5, 0, 1, 2), 0.0)
    assert weights is not None
    np.testing.assert_allclose(vector(weights, 6), [1 / 18, 1 / 18, 1 / 18, 0, 0, 1 / 6])


@pytest.mark.parametrize("workers", range(1, 9))
def test_dgd_needs_everybody_and_is_exact(workers: int) -> None:
    scheme = built("dgd", workers, 0)
    assert scheme is not None
    assert scheme.k == workers
    for arrived in all_subsets(workers):
        weights = scheme.decoder.weights(arrived[::-1], 0.0)
        assert (weights is not None) == (len(arrived) == workers)
        if weights is not None:
            np.testing.assert_allclose(share(weights, identity_support(workers)), 1, atol=1e-6)


@pytest.mark.parametrize("name", ["is-sgd", "fastest-k"])
@pytest.mark.parametrize(("workers", "stragglers"), SIZES)
def test_ignore_straggler_sgd_divides_by_the_number_that_came(name: str, workers: int, stragglers: int) -> None:
    scheme = built(name, workers, stragglers)
    assert scheme is not None
    assert (scheme.k, scheme.takes_any_k) == (workers - stragglers, True)
    for arrived in all_subsets(workers):
        weights = scheme.decoder.weights(arrived, 0.0)
        assert (weights is None) == (not arrived)
        if weights is not None:
            expected = [workers / len(arrived) if worker in arrived else 0 for worker in range(workers)]
            np.testing.assert_allclose(share(weights, identity_support(workers)), expected)


def test_the_alias_has_the_same_parts_as_the_scheme_and_its_k_is_free() -> None:
    alias = builds(name="fastest-k", workers=8, k=3)
    assert alias is not None
    assert (alias.name, alias.k, alias.takes_any_k) == ("fastest-k", 3, True)


@pytest.mark.parametrize(("workers", "stragglers"), SIZES)
def test_pipelined_cyclic_shares_are_bounded_and_average_one_over_patterns_of_a_size(
    workers: int, stragglers: int
) -> None:
    load = stragglers + 1
    scheme = built("pgc-cr", workers, stragglers)
    assert scheme is not None
    encode = cyclic_support(workers, load)
    np.testing.assert_array_equal(scheme.encode_NN(), encode)
    assert scheme.decoder.weights((), 0.0) is None
    for size in range(1, workers + 1):
        shares = []
        for arrived in itertools.combinations(range(workers), size):
            weights = scheme.decoder.weights(arrived, 0.0)
            assert weights is not None
            assert weights.values == pytest.approx((1 / (size * load),) * size)
            assert set(weights.workers) == set(arrived)
            shares.append(share(weights, encode))
        assert np.min(shares) >= 0
        assert np.max(shares) <= workers / max(size, load) + 1e-9
        np.testing.assert_allclose(np.mean(shares, axis=0), 1)


@pytest.mark.parametrize(("workers", "stragglers"), [(n, s) for n, s in SIZES if n > 2 * s])
def test_pipelined_cyclic_shares_stay_below_two_when_only_s_are_missing(workers: int, stragglers: int) -> None:
    scheme = built("pgc-cr", workers, stragglers)
    assert scheme is not None
    for arrived in itertools.combinations(range(workers), workers - stragglers):
        weights = scheme.decoder.weights(arrived, 0.0)
        assert weights is not None
        assert share(weights, cyclic_support(workers, stragglers + 1)).max() < 2


LOADED = [(n, s, c) for n, s in SIZES for c in (None, s + 2) if c is None or c <= n]


@pytest.mark.parametrize(("workers", "stragglers", "load"), LOADED)
def test_cyclic_gradient_coding_is_usable_exactly_when_least_squares_can_make_one(
    workers: int, stragglers: int, load: int | None
) -> None:
    scheme = built("gc-cr", workers, stragglers, load)
    assert scheme is not None
    encode = scheme.encode_NN()
    np.testing.assert_array_equal(encode != 0, cyclic_support(workers, load or stragglers + 1) > 0)
    for arrived in all_subsets(workers):
        shuffled = tuple(np.random.default_rng(list(arrived)).permutation(arrived).astype(int).tolist())
        weights = scheme.decoder.weights(shuffled, 0.7)
        solution, error, alpha = least_squares(encode, arrived)
        assert (weights is not None) == (error <= 1e-7 and alpha <= 1000), (arrived, error, alpha)
        if len(arrived) >= workers - stragglers:
            assert weights is not None
        if weights is not None:
            np.testing.assert_allclose(share(weights, encode), 1, atol=1e-6)
            np.testing.assert_allclose(workers * vector(weights, workers), solution, atol=1e-8 * max(1, alpha))


def least_squares(encode_NN: np.ndarray, arrived: Sequence[int]) -> tuple[np.ndarray, float, float]:
    """The minimum-norm solution over these rows, its residual, and its largest |alpha|."""
    workers = len(encode_NN)
    solution = np.zeros(workers)
    if arrived:
        rows = encode_NN[list(arrived)]
        solution[list(arrived)] = np.linalg.lstsq(rows.T, np.ones(workers), rcond=1e-12)[0]
    error = float(np.abs(solution @ encode_NN - 1).max())
    return solution, error, float(np.abs(solution[:, None] * encode_NN).max())


@repeatable
@given(data=st.data(), workers=st.integers(9, 40), stragglers=st.integers(1, 5))
def test_cyclic_mds_decodes_like_least_squares_with_many_workers(
    data: st.DataObject, workers: int, stragglers: int
) -> None:
    workers += (workers - stragglers + 1) % 2
    decoder = LinearDecoder(Code("", codes.cyclic_mds(workers, stragglers + 1), workers - stragglers, 0.0), np.inf)
    gone = data.draw(st.sets(st.integers(0, workers - 1), max_size=stragglers))
    arrived = [worker for worker in range(workers) if worker not in gone]
    weights = decoder.weights(arrived, 0.0)
    solution, error, alpha = least_squares(decoder.code.encode_NN, arrived)
    assert error < 1e-6
    assert weights is not None
    np.testing.assert_allclose(workers * vector(weights, workers), solution, atol=1e-7 * max(1, alpha))


def test_one_spare_arrival_is_used_and_makes_the_weights_smaller() -> None:
    scheme = built("gc-cr", 8, 3)
    assert scheme is not None
    for arrived in itertools.combinations(range(8), 6):
        six, five = (scheme.decoder.weights(some, 0.0) for some in (arrived, arrived[1:]))
        assert six is not None
        assert five is not None
        assert set(six.workers) == set(arrived)
        assert np.linalg.norm(six.values) <= np.linalg.norm(five.values) + 1e-12


def test_cyclic_mds_for_twelve_workers_decodes_the_recorded_number_of_smaller_sets() -> None:
    scheme = built("gc-cr", 12, 3)
    assert scheme is not None
    usable = [scheme.decoder.weights(arrived, 0.0) for arrived in itertools.combinations(range(12), 8)]
    assert sum(weights is not None for weights in usable) == 66


def test_weights_beyond_the_alpha_limit_are_not_usable_yet_and_another_arrival_makes_them_so() -> None:
    code = Code("", codes.cyclic_mds(12, 4), 9, 11.0)
    mild, strict = LinearDecoder(code), LinearDecoder(code, alpha_limit=5.0)
    refused = 0
    for arrived in itertools.combinations(range(12), 9):
        weights = mild.weights(arrived, 0.0)
        assert weights is not None
        alpha = np.abs(12 * vector(weights, 12)[:, None] * code.encode_NN).max()
        assert (strict.weights(arrived, 0.0) is None) == bool(alpha > 5.0)
        refused += alpha > 5.0
    assert 0 < refused < 220
    assert strict.weights(range(12), 0.0) is not None


def test_the_naive_scheme_takes_any_alpha_while_gradient_coding_does_not() -> None:
    naive = builds(name="pgc-cr-naive", workers=12, stragglers=5, seed=3)
    assert naive is not None
    assert naive.code.startswith("random")
    encode = naive.encode_NN()
    arrived = max(itertools.combinations(range(12), 7), key=lambda rows: least_squares(encode, rows)[2])
    weights = naive.decoder.weights(arrived, 0.0)
    limited = LinearDecoder(Code("", naive.coefficients_NC, 7, 0.0))
    solution, _, alpha = least_squares(encode, arrived)
    assert alpha > 1000
    assert limited.weights(arrived, 0.0) is None
    assert weights is not None
    np.testing.assert_allclose(12 * vector(weights, 12), solution, atol=1e-6 * alpha)


@pytest.mark.parametrize(("workers", "stragglers"), SIZES)
def test_the_naive_scheme_is_usable_from_n_minus_s_arrivals(workers: int, stragglers: int) -> None:
    scheme = built("pgc-cr-naive", workers, stragglers)
    assert scheme is not None
    for arrived in itertools.combinations(range(workers), workers - stragglers):
        weights = scheme.decoder.weights(arrived, 0.0)
        assert weights is not None
        np.testing.assert_allclose(share(weights, scheme.encode_NN()), 1, atol=1e-6)


def test_a_remembered_answer_is_that_of_a_fresh_decoder() -> None:
    code = Code("", codes.cyclic_mds(8, 4), 5, 0.0)
    busy = LinearDecoder(code)
    patterns = list(all_subsets(8))
    asked = [busy.weights(arrived, 0.1) for arrived in patterns]
    for arrived, first in zip(patterns[::-1], asked[::-1], strict=True):
        assert busy.weights(arrived[::-1], 0.9) == first == LinearDecoder(code).weights(arrived, 0.1)


# ---------------------------------------------------------------- what too few arrivals recover


PARTIAL_EXACT = [("dgd", 6, 0), ("gc-fr", 6, 1), ("pgc-fr", 6, 2), ("pgc-fr-staggered", 6, 2)]


@pytest.mark.parametrize(("name", "workers", "stragglers"), PARTIAL_EXACT)
def test_what_is_recovered_is_divided_by_what_is_recovered(name: str, workers: int, stragglers: int) -> None:
    scheme = built(name, workers, stragglers)
    assert scheme is not None
    assert scheme.decoder.partial((), 0.0) is None
    for arrived in all_subsets(workers):
        for order in orders(arrived):
            weights = scheme.decoder.partial(order, 0.0)
            if weights is None:
                assert not arrived
                continue
            recovered = scheme.encode_NN()[list(arrived)].sum(axis=0) > 0
            expected = np.where(recovered, workers / recovered.sum(), 0)
            np.testing.assert_allclose(share(weights, scheme.encode_NN()), expected)


@pytest.mark.parametrize(("workers", "stragglers"), [(6, 1), (7, 2), (8, 3)])
def test_partial_cyclic_coding_is_least_squares_divided_by_its_mean_share(workers: int, stragglers: int) -> None:
    scheme = built("gc-cr", workers, stragglers)
    assert scheme is not None
    for arrived in all_subsets(workers):
        weights = scheme.decoder.partial(arrived[::-1], 0.0)
        if not arrived:
            assert weights is None
            continue
        assert weights is not None
        found = share(weights, scheme.encode_NN())
        solution, _, alpha = least_squares(scheme.encode_NN(), arrived)
        fitted = solution @ scheme.encode_NN()
        np.testing.assert_allclose(found, fitted / fitted.mean(), atol=1e-8 * max(1, alpha))


def test_a_partial_combination_beyond_the_alpha_limit_is_none() -> None:
    code = Code("", codes.cyclic_mds(12, 4), 9, 11.0)
    mild, strict = LinearDecoder(code, alpha_limit=np.inf), LinearDecoder(code, alpha_limit=2.0)
    refused = 0
    for arrived in itertools.combinations(range(12), 7):
        weights = mild.partial(arrived, 0.0)
        assert weights is not None
        alpha = np.abs(12 * vector(weights, 12)[:, None] * code.encode_NN).max()
        assert (strict.partial(arrived, 0.0) is None) == bool(alpha > 2.0)
        refused += alpha > 2.0
    assert 0 < refused < 792


def test_where_nobody_holds_a_partition_nothing_is_solved() -> None:
    decoder = LinearDecoder(Code("", codes.cyclic_mds(12, 4), 9, 11.0))
    for first in range(12):
        gone = {(first + place) % 12 for place in range(4)}
        assert decoder.weights([worker for worker in range(12) if worker not in gone], 0.0) is None
    assert decoder._solve.cache_info().misses == 0  # type: ignore[attr-defined]


# ---------------------------------------------------------------- float32


def gradients(workers: int) -> np.ndarray:
    return np.random.default_rng(workers).standard_normal((workers, 64)).astype(np.float32)


@cache
def accepted_cyclic() -> list[tuple[int, int]]:
    """All (n, s) up to 16 and 5 that ``code = "auto"`` accepts."""
    sizes = [(n, s) for n in range(2, 17) for s in range(1, min(6, n))]
    return [(n, s) for n, s in sizes if built("gc-cr", n, s) is not None]


def survivors(workers: int, stragglers: int) -> list[tuple[int, ...]]:
    """All patterns if at most 300, else the consecutive ones and 200 random ones."""
    every = list(itertools.combinations(range(workers), workers - stragglers))
    if len(every) <= 300:
        return every
    turned = [tuple((first + i) % workers for i in range(workers - stragglers)) for first in range(workers)]
    chosen = np.random.default_rng(workers).choice(len(every), 200, replace=False)
    return turned + [every[index] for index in chosen]


@pytest.mark.parametrize("workers", range(2, 17))
def test_float32_decoding_loses_at_most_a_ten_thousandth_of_the_largest_gradient(workers: int) -> None:
    grad_ND = gradients(workers)
    largest = np.linalg.norm(grad_ND, axis=1).max()
    exact = grad_ND.astype(np.float64).mean(axis=0)
    for stragglers in (s for n, s in accepted_cyclic() if n == workers):
        scheme = built("gc-cr", workers, stragglers)
        assert scheme is not None
        messages = encoded(scheme, grad_ND)
        for arrived in survivors(workers, stragglers):
            weights = scheme.decoder.weights(arrived, 0.0)
            assert weights is not None
            decoded = np.zeros(64, dtype=np.float32)
            for worker, value in zip(weights.workers, weights.values, strict=True):
                decoded += np.float32(value) * messages[worker]
            assert np.linalg.norm(decoded - exact) <= 1e-4 * largest, (stragglers, arrived)


def encoded(scheme: Scheme, grad_ND: np.ndarray) -> np.ndarray:
    """Every worker's message in float32, places in order."""
    messages = np.zeros_like(grad_ND)
    for worker, held in enumerate(scheme.placement.held):
        for place, partition in enumerate(held):
            messages[worker] += np.float32(scheme.coefficients_NC[worker, place]) * grad_ND[partition]
    return messages


def test_everything_up_to_sixteen_workers_but_four_sizes_is_accepted() -> None:
    sizes = {(n, s) for n in range(2, 17) for s in range(1, min(6, n))}
    assert sizes - set(accepted_cyclic()) == {(14, 4), (16, 4), (13, 5), (15, 5)}


def test_every_scheme_by_name_keeps_its_name_and_shape() -> None:
    for name in SCHEMES:
        scheme = builds(name=name, workers=8, stragglers=1)
        assert scheme is not None
        assert (scheme.name, scheme.workers) == (name, 8)
        assert scheme.coefficients_NC.shape == (8, scheme.load)
