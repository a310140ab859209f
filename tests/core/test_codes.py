"""Encoding matrices: they span 1, their conditioning is what schemes.md section 3 says, bad ones are refused."""

import itertools
import re
from math import comb

import numpy as np
import pytest
from core_oracles import builds, repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core import codes, seeds
from pgczmq.core.codes import Code
from pgczmq.core.schemes import Settings, build
from pgczmq.errors import ConfigError


def matrix(rows_NC: np.ndarray) -> np.ndarray:
    """Row j's coefficients at columns j, j+1, ..., one at a time."""
    workers, load = rows_NC.shape
    full = np.zeros((workers, workers))
    for worker in range(workers):
        for place in range(load):
            full[worker, (worker + place) % workers] = rows_NC[worker, place]
    return full


def worst_alpha(encode_NN: np.ndarray, stragglers: int) -> float:
    """Largest |alpha| over all patterns, by a full least squares for each."""
    workers, worst = len(encode_NN), 0.0
    for kept in itertools.combinations(range(workers), workers - stragglers):
        rows = encode_NN[list(kept)]
        solution = np.linalg.lstsq(rows.T, np.ones(workers), rcond=1e-13)[0]
        worst = max(worst, workers * np.abs(solution[:, None] / workers * rows).max())
    return float(worst)


SIZES = [(n, c) for n in range(2, 9) for c in range(2, n + 1)]


@pytest.mark.parametrize(("workers", "load"), SIZES)
def test_any_workers_minus_load_plus_one_rows_of_a_random_code_span_one(workers: int, load: int) -> None:
    encode = matrix(codes.random_cyclic(workers, load, np.random.default_rng(workers * 10 + load)))
    for kept in itertools.combinations(range(workers), workers - load + 1):
        rows = encode[list(kept)]
        solution = np.linalg.lstsq(rows.T, np.ones(workers), rcond=1e-13)[0]
        scale = max(1.0, np.abs(solution).max())
        assert np.abs(solution @ rows - 1).max() < 1e-9 * scale


@pytest.mark.parametrize(("workers", "load"), SIZES)
def test_rows_of_a_random_code_have_unit_norm_and_the_matrix_has_the_rank_it_claims(workers: int, load: int) -> None:
    rows = codes.random_cyclic(workers, load, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
    singular = np.linalg.svd(matrix(rows), compute_uv=False)
    rank = workers - load + 1
    assert singular[rank - 1] > 1e-8
    assert (singular[rank:] < 1e-8 * singular[0]).all()


@repeatable
@given(workers=st.integers(9, 40), load=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_a_random_code_of_many_workers_spans_one_from_random_survivors(workers: int, load: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    encode = matrix(codes.random_cyclic(workers, load, generator))
    kept = generator.permutation(workers)[: workers - load + 1]
    solution = np.linalg.lstsq(encode[kept].T, np.ones(workers), rcond=1e-14)[0]
    assert np.abs(solution @ encode[kept] - 1).max() < 1e-9 * max(1.0, np.abs(solution).max())


def test_load_one_needs_no_code() -> None:
    np.testing.assert_array_equal(codes.random_cyclic(5, 1, np.random.default_rng(0)), np.ones((5, 1)))
    chosen = codes.choose(5, 1, stragglers=0, kind="auto", seed=1)
    assert (chosen.rank, chosen.max_alpha) == (5, 1.0)


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n, c in SIZES if (n - c) % 2 == 0])
def test_the_cyclic_mds_code_vanishes_where_its_polynomial_does(workers: int, load: int) -> None:
    """Row j is proportional to prod over z outside its support of sin(pi (k - z) / n), for every k."""
    encode = matrix(codes.cyclic_mds(workers, load))
    for worker in range(workers):
        outside = [(worker + place) % workers for place in range(load, workers)]
        values = [np.prod([np.sin(np.pi * (k - z) / workers) for z in outside]) for k in range(workers)]
        row = np.array(values) / np.linalg.norm(values)
        np.testing.assert_allclose(np.abs(encode[worker] @ row), 1, rtol=1e-10)


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n, c in SIZES if (n - c) % 2])
def test_the_cyclic_mds_code_is_refused_where_it_is_not_real_and_the_named_ones_are(workers: int, load: int) -> None:
    with pytest.raises(ConfigError, match=rf"got workers={workers}, load={load}\. Nearest valid: load={load + 1}"):
        codes.cyclic_mds(workers, load)
    assert codes.cyclic_mds(workers, load + 1).shape == (workers, load + 1)
    assert codes.cyclic_mds(workers + 1, load).shape == (workers + 1, load)


FIXTURES = [(12, 1, 1), (12, 3, 11), (12, 5, 35), (20, 3, 30), (32, 5, 2.2e3), (64, 5, 3.6e4)]


@pytest.mark.parametrize(("workers", "stragglers", "expected"), FIXTURES)
def test_conditioning_of_cyclic_mds_codes_is_as_recorded(workers: int, stragglers: int, expected: float) -> None:
    found = codes.largest_alpha(codes.cyclic_mds(workers, stragglers + 1), stragglers)
    assert float(f"{found:.2g}") == expected


def test_a_longer_real_code_is_far_better_than_the_best_draw_where_the_short_one_is_not_real() -> None:
    drawn = codes.choose(12, 3, stragglers=2, kind="auto", seed=1)
    longer = codes.choose(12, 4, stragglers=2, kind="auto", seed=1)
    assert (drawn.name, longer.name) == ("random (best of 400)", "cyclic MDS")
    assert longer.max_alpha == pytest.approx(worst_alpha(matrix(codes.cyclic_mds(12, 4)), 2))
    assert 3 * longer.max_alpha < worst_alpha(matrix(drawn.coefficients_NC), 2) < 100


@pytest.mark.parametrize(("workers", "load", "stragglers"), [(6, 2, 1), (7, 3, 2), (8, 4, 3), (8, 3, 2), (8, 4, 2)])
def test_the_score_of_a_code_is_its_worst_pattern(workers: int, load: int, stragglers: int) -> None:
    rows = codes.random_cyclic(workers, load, np.random.default_rng(3))
    assert codes.largest_alpha(rows, stragglers) == pytest.approx(worst_alpha(matrix(rows), stragglers), rel=1e-6)


def test_scoring_gives_up_once_it_is_worse_than_the_best_so_far() -> None:
    rows = codes.cyclic_mds(12, 4)
    assert codes.largest_alpha(rows, 3, give_up_above=5.0) == float("inf")
    assert codes.largest_alpha(rows, 3, give_up_above=12.0) < 12


def test_many_patterns_are_sampled_and_the_consecutive_ones_are_among_them() -> None:
    assert comb(64, 5) > codes.PATTERNS_AT_MOST
    rows = codes.cyclic_mds(64, 6)
    kept = matrix(rows)[5:]
    solution = np.linalg.lstsq(kept.T, np.ones(64), rcond=None)[0]
    consecutive = np.abs(solution[:, None] * kept).max()
    assert codes.largest_alpha(rows, 5) >= consecutive * (1 - 1e-6)


def test_automatic_choice_takes_the_real_code_where_there_is_one_and_the_best_draw_elsewhere() -> None:
    assert codes.choose(12, 4, stragglers=3, kind="auto", seed=1).name == "cyclic MDS"
    drawn = codes.choose(9, 3, stragglers=2, kind="random", seed=1)
    single = [codes.random_cyclic(9, 3, seeds.rng(1, "code", 9, 3, draw)) for draw in range(10)]
    assert drawn.max_alpha <= min(worst_alpha(matrix(rows), 2) for rows in single) * (1 + 1e-6)


def test_the_same_seed_chooses_the_same_code_and_another_seed_another() -> None:
    one, same, other = (codes.choose(8, 3, stragglers=2, kind="random", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.coefficients_NC, same.coefficients_NC)
    assert not np.array_equal(one.coefficients_NC, other.coefficients_NC)


def test_the_encoding_matrix_puts_coefficients_where_the_cyclic_placement_has_them() -> None:
    rows = np.arange(1.0, 16.0).reshape(5, 3)
    np.testing.assert_array_equal(Code("", rows, 3, 0.0).encode_NN, matrix(rows))


def named_options(sentence: str) -> list[dict[str, int]]:
    """Every "load=5", "workers=13 with load=5" ... that the sentence names after "Nearest"."""
    words = re.split(r"Nearest that are[^:]*: ", sentence)[-1].partition(";")[0]
    return [
        {name: int(value) for name, value in re.findall(r"(workers|load|stragglers)=(\d+)", option)}
        for option in words.split("), ")
        if "Nearest that are" in sentence
    ]


REFUSED = [(14, 4), (16, 4), (13, 5), (15, 5)]


@pytest.mark.parametrize(("workers", "stragglers"), REFUSED)
def test_badly_conditioned_sizes_are_refused_and_every_named_option_builds(workers: int, stragglers: int) -> None:
    given = {"name": "gc-cr", "workers": workers, "stragglers": stragglers}
    with pytest.raises(ConfigError, match="well conditioned") as caught:
        build(Settings(**given))
    assert f"got workers={workers}, stragglers={stragglers}, load={stragglers + 1}" in str(caught.value)
    options = named_options(str(caught.value))
    assert options
    for option in options:
        built = builds(**(given | option))
        assert built is not None, option
        assert built.max_alpha <= 1000


@pytest.mark.parametrize("kind", ["random", "cyclic-mds"])
@pytest.mark.parametrize(("workers", "stragglers"), [(14, 5), (13, 5), (16, 5), (9, 2), (12, 2)])
def test_options_named_to_someone_who_chose_the_code_build_with_that_code(
    workers: int, stragglers: int, kind: str
) -> None:
    given = {"name": "gc-cr", "workers": workers, "stragglers": stragglers, "code": kind}
    try:
        assert build(Settings(**given)).max_alpha <= 1000
    except ConfigError as error:
        sentence = str(error)
    else:
        return
    options = named_options(sentence) or [
        {name: int(value)} for name, value in re.findall(r"(workers|load)=(\d+)", sentence.partition("Nearest")[2])
    ]
    assert options, sentence
    if 'code = "auto"' in sentence:
        given["code"] = "auto"
    for option in options:
        assert builds(**(given | option)) is not None, (option, sentence)


def test_all_other_sizes_up_to_sixteen_are_accepted() -> None:
    sizes = [(n, s) for n in range(2, 17) for s in range(min(n, 6)) if (n - s) % 2 and (n, s) not in REFUSED]
    for workers, stragglers in sizes:
        built = builds(name="gc-cr", workers=workers, stragglers=stragglers)
        assert built is not None, (workers, stragglers)
        assert built.code == ("ones" if stragglers == 0 else "cyclic MDS")


def test_very_many_workers_are_refused_beyond_two_stragglers() -> None:
    with pytest.raises(ConfigError, match="well conditioned") as caught:
        build(Settings(name="gc-cr", workers=256, stragglers=3))
    for option in named_options(str(caught.value)):
        assert builds(**({"name": "gc-cr", "workers": 256, "stragglers": 3} | option)) is not None, option
