"""What cannot be built is refused in a sentence that names what can, and the named things build."""

import itertools
import re

import numpy as np
import pytest
from core_oracles import builds

from pgczmq.core.schedule import EvaluateAll, EvaluateOne
from pgczmq.core.schemes import SCHEMES, Scheme, Settings, build, finish
from pgczmq.errors import ConfigError


def refusal(**given: object) -> str:
    with pytest.raises(ConfigError) as caught:
        build(Settings(**given))  # type: ignore[arg-type]
    return str(caught.value)


def numbers_after(word: str, sentence: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", sentence.partition(word)[2])]


def named(sentence: str) -> list[tuple[str, int]]:
    """Every setting=value of the sentence after what was given."""
    offers = sentence.partition("got ")[2].partition(". ")[2]
    return [(name, int(value)) for name, value in re.findall(r"(\w+)=(\d+)", offers)]


CODED = ["gc-fr", "gc-cr", "pgc-fr", "pgc-cr", "pgc-fr-staggered", "pgc-cr-naive"]
ANY_K = ["is-sgd", "fastest-k", "is-gc-fr", "is-gc-cr", "is-gc-hr", "pgc-cr"]
PIPELINED = ["pgc-fr", "pgc-cr", "pgc-fr-staggered", "pgc-cr-naive"]


def test_an_unknown_scheme_is_told_the_nearest_and_all_of_them() -> None:
    sentence = refusal(name="pcg-cr", workers=8)
    assert "there is no scheme pcg-cr. The nearest is pgc-cr." in sentence
    assert all(name in sentence for name in SCHEMES)
    assert '"module:function"' in sentence


def test_a_name_like_no_other_is_only_told_the_list() -> None:
    sentence = refusal(name="zzzz", workers=8)
    assert "nearest" not in sentence
    assert "dgd" in sentence


@pytest.mark.parametrize("name", ["gc-fr", "pgc-fr", "pgc-fr-staggered"])
@pytest.mark.parametrize(("workers", "stragglers"), [(10, 3), (7, 1), (8, 2), (11, 4)])
def test_fractional_schemes_name_worker_counts_that_build(name: str, workers: int, stragglers: int) -> None:
    sentence = refusal(name=name, workers=workers, stragglers=stragglers)
    assert f"workers={workers}" in sentence
    counts = numbers_after("Nearest valid worker counts", sentence)
    assert len(counts) == 2
    assert counts[0] < workers < counts[1]
    for count in counts:
        assert builds(name=name, workers=count, stragglers=stragglers) is not None


def test_fractional_schemes_speak_of_the_setting_that_the_user_set() -> None:
    assert refusal(name="gc-fr", workers=10, stragglers=3) == (
        "fractional repetition needs (stragglers + 1) to divide workers: got workers=10, stragglers=3 (load 4). "
        "Nearest valid worker counts: 8 and 12."
    )
    for name in ("gc-fr", "is-gc-fr"):
        assert refusal(name=name, workers=10, stragglers=2, load=4) == (
            "fractional repetition needs load to divide workers: got workers=10, load=4. "
            "Nearest valid worker counts: 8 and 12."
        )


@pytest.mark.parametrize("name", CODED)
def test_waiting_for_nobody_is_refused_also_when_load_is_set(name: str) -> None:
    sentence = refusal(name=name, workers=4, stragglers=4, load=2)
    assert named(sentence) == [("stragglers", 3)]


@pytest.mark.parametrize("name", [*CODED, "is-sgd", "is-gc-cr"])
def test_waiting_for_nobody_is_refused_and_the_most_stragglers_named(name: str) -> None:
    sentence = refusal(name=name, workers=4, stragglers=4)
    assert "stragglers=4, workers=4" in sentence
    assert named(sentence) == [("stragglers", 3)]
    assert builds(name=name, workers=4, stragglers=3) is not None


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize(("workers", "stragglers", "load"), [(8, 3, 2), (8, 2, 2), (12, 4, 3), (8, 2, 1), (9, 4, 4)])
def test_a_load_too_small_for_the_stragglers_names_settings_that_build(
    name: str, workers: int, stragglers: int, load: int
) -> None:
    given = {"name": name, "workers": workers, "stragglers": stragglers, "load": load}
    sentence = refusal(**given)
    assert f"got load={load}, stragglers={stragglers}" in sentence
    offers = named(sentence)
    assert offers
    for setting, value in offers:
        assert builds(**(given | {setting: value})) is not None, (setting, value)


@pytest.mark.parametrize("name", ANY_K)
def test_more_arrivals_than_workers_are_refused_and_the_most_named(name: str) -> None:
    sentence = refusal(name=name, workers=8, k=9)
    assert "k=9, workers=8" in sentence
    assert named(sentence) == [("k", 8)]


@pytest.mark.parametrize("name", ANY_K)
def test_schemes_usable_at_any_k_take_every_k(name: str) -> None:
    for k in range(1, 9):
        scheme = builds(name=name, workers=8, k=k)
        assert scheme is not None
        assert (scheme.k, scheme.takes_any_k) == (k, True)


@pytest.mark.parametrize("name", [name for name in CODED if name not in ANY_K])
@pytest.mark.parametrize("k", [1, 6, 8, 11])
def test_schemes_whose_code_fixes_k_refuse_another_and_name_theirs(name: str, k: int) -> None:
    sentence = refusal(name=name, workers=8, stragglers=1, k=k)
    assert f"k={k}, workers=8, stragglers=1" in sentence
    assert named(sentence) == [("k", 7)]
    scheme = builds(name=name, workers=8, stragglers=1, k=7)
    assert scheme is not None
    assert (scheme.k, scheme.takes_any_k) == (7, False)


@pytest.mark.parametrize("name", PIPELINED)
def test_max_age_below_the_rotation_is_refused_and_the_least_named(name: str) -> None:
    sentence = refusal(name=name, workers=8, stragglers=3, max_age=2)
    assert "max_age=2, load=4" in sentence
    assert numbers_after("The least is", sentence) == [3]
    scheme = builds(name=name, workers=8, stragglers=3, max_age=3)
    assert scheme is not None
    assert isinstance(scheme.schedule, EvaluateOne)
    assert scheme.schedule.max_age == 3


@pytest.mark.parametrize("name", PIPELINED)
def test_pipelined_schemes_rotate_with_twice_the_load_as_preferred_age(name: str) -> None:
    scheme = builds(name=name, workers=8, stragglers=3)
    assert scheme is not None
    assert scheme.schedule == EvaluateOne(max_age=7, stagger=1 if name == "pgc-fr-staggered" else 0)


@pytest.mark.parametrize("name", [name for name in SCHEMES if name not in PIPELINED])
def test_the_other_schemes_evaluate_all_they_hold(name: str) -> None:
    scheme = builds(name=name, workers=8)
    assert scheme is not None
    assert scheme.schedule == EvaluateAll()
    assert scheme.load == (1 if name in {"dgd", "is-sgd", "fastest-k"} else 2)


@pytest.mark.parametrize("name", ["is-gc-fr", "is-gc-cr", "is-gc-hr"])
def test_ignore_straggler_coding_may_hold_any_number_whatever_the_stragglers(name: str) -> None:
    for load in (1, 2, 4):
        scheme = builds(name=name, workers=8, stragglers=5, load=load)
        assert scheme is not None
        assert (scheme.load, scheme.k) == (load, 3)


def test_a_code_of_one_draw_depends_on_the_seed_alone() -> None:
    one, same, other = (builds(name="pgc-cr-naive", workers=8, seed=seed) for seed in (4, 4, 5))
    assert one is not None
    assert same is not None
    assert other is not None
    np.testing.assert_array_equal(one.coefficients_NC, same.coefficients_NC)
    assert not np.array_equal(one.coefficients_NC, other.coefficients_NC)


@pytest.mark.parametrize("name", SCHEMES)
def test_settings_shared_by_all_schemes_arrive_in_every_one(name: str) -> None:
    settings = Settings(name=name, workers=8, shortfall="partial", on_new_step="abandon", wait="usable")
    scheme = build(settings)
    assert (scheme.shortfall, scheme.on_new_step) == ("partial", "abandon")
    assert scheme.wait == ("usable" if "wait" in scheme.reads else "k")
    assert (scheme.policy.first().plan.k, scheme.policy.first().plan.batch_fraction) == (scheme.k, 1.0)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_setting_that_a_scheme_says_it_ignores_changes_nothing(name: str) -> None:
    plain = build(Settings(name=name, workers=8))
    other = {"wait": "usable", "max_age": 9, "groups": 2, "local_load": 1, "code": "random"}
    for setting in other.keys() - plain.reads:
        changed = build(Settings(name=name, workers=8, **{setting: other[setting]}))
        assert changed.placement == plain.placement
        assert changed.schedule == plain.schedule
        assert (changed.wait, changed.k, changed.code) == (plain.wait, plain.k, plain.code)
        np.testing.assert_array_equal(changed.coefficients_NC, plain.coefficients_NC)


def test_a_scheme_of_ones_own_takes_the_shared_settings_when_it_is_finished() -> None:
    inner = build(Settings(name="dgd", workers=3))
    scheme = finish(inner, Settings(name="mine:scheme", workers=3, shortfall="partial", on_new_step="abandon"))
    assert (scheme.name, scheme.shortfall, scheme.on_new_step) == ("mine:scheme", "partial", "abandon")


def test_the_encoding_matrix_is_read_from_placement_and_coefficients() -> None:
    scheme = build(Settings(name="pgc-cr", workers=5, stragglers=1))
    expected = np.eye(5) + np.roll(np.eye(5), 1, axis=1)
    np.testing.assert_array_equal(scheme.encode_NN(), expected)


def test_whether_answers_suffice_is_whether_they_are_usable() -> None:
    for name in SCHEMES:
        for wait in ("k", "usable"):
            scheme = build(Settings(name=name, workers=6, stragglers=2 if name != "gc-cr" else 1, wait=wait))
            for count in range(1, 7):
                for k in (scheme.k, 1, 6):
                    for some in itertools.combinations(range(6), count):
                        found = scheme.usable(some, k=k, origin=0.3)
                        assert scheme.suffices(some, k=k, origin=0.3) == (found is not None)
                        decoded = scheme.decoder.weights(some, 0.3)
                        late = count < k and (scheme.wait == "k" or scheme.takes_any_k)
                        assert found == (None if late else decoded)


def test_a_scheme_that_does_not_say_what_it_reads_is_not_taken_to_read_nothing() -> None:
    inner = build(Settings(name="dgd", workers=3))
    own = Scheme("mine", inner.placement, inner.coefficients_NC, inner.schedule, inner.decoder, k=3)
    assert own.reads is None
    assert inner.reads == frozenset()
    assert all(build(Settings(name=name, workers=6)).reads is not None for name in SCHEMES)
