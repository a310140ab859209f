"""``net.payload`` and ``net.wire_dtype``: what a run may ask of the way to its workers."""

import pytest

from pgczmq import config
from pgczmq.app import build, master
from pgczmq.app.build import ALPHA_FOR_BFLOAT16
from pgczmq.core.schemes import SCHEMES
from pgczmq.errors import ConfigError

HALF = "net.wire_dtype=bfloat16"


def check(*given: str) -> None:
    master.check(config.load(None, given, {}))


def refusal(*given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check(*given)
    return str(caught.value)


@pytest.mark.parametrize("name", SCHEMES)
def test_rounding_is_taken_by_every_scheme_that_does_not_multiply_it(name: str) -> None:
    given = (f"scheme.name={name}", "workers=8", "scheme.stragglers=1", "scheme.load=2")
    hybrid = ("scheme.groups=4", "scheme.local_load=1") if name == "is-gc-hr" else ()
    if name == "pgc-cr-naive":
        assert "with pgc-cr-naive" in refusal(*given, HALF)
    else:
        check(*given, *hybrid, HALF)


@pytest.mark.parametrize("stragglers", [2, 3])
def test_rounding_is_refused_where_decoding_multiplies_it(stragglers: int) -> None:
    given = ("scheme.name=gc-cr", "workers=12", f"scheme.stragglers={stragglers}")
    check(*given)
    largest = build.scheme_of(config.load(None, given, {})).max_alpha
    assert largest > ALPHA_FOR_BFLOAT16
    assert refusal(*given, HALF) == (
        "bfloat16 keeps 8 bits, and decoding multiplies what is lost by the largest |alpha|, which may be 2.56 at "
        f'most: got net.wire_dtype="bfloat16" with gc-cr, whose largest is {largest:.3g}. Use float32, or a scheme '
        "without a code such as gc-fr or pgc-cr."
    )
    check("scheme.name=pgc-cr", "workers=12", f"scheme.stragglers={stragglers}", HALF)


def test_a_mild_code_may_be_rounded_and_the_limit_is_one_percent() -> None:
    mild = ("scheme.name=gc-cr", "workers=5", "scheme.stragglers=1")
    assert 2.0 < build.scheme_of(config.load(None, mild, {})).max_alpha <= ALPHA_FOR_BFLOAT16
    check(*mild, HALF)
    assert ALPHA_FOR_BFLOAT16 * 2**-8 == 1e-2


@pytest.mark.parametrize("name", ["dgd", "pgc-cr", "gc-cr"])
def test_a_deterministic_run_is_not_rounded(name: str) -> None:
    given = (f"scheme.name={name}", "deterministic=true")
    check(*given)
    sentence = refusal(*given, HALF)
    assert sentence.startswith("a deterministic run has the bits of its simulation, and those are float32: got ")
    assert sentence.endswith("Leave net.wire_dtype out.")


@pytest.mark.parametrize("payload", ["auto", "shm", "tcp"])
def test_every_way_goes_with_every_rounding(payload: str) -> None:
    """What passes through shared memory stays float32."""
    check(f"net.payload={payload}")
    check(f"net.payload={payload}", HALF)
    check(f"net.payload={payload}", "deterministic=true")


def test_other_ways_and_types_are_refused_by_name() -> None:
    assert refusal("net.payload=udp") == "net.payload should be 'auto', 'shm' or 'tcp': got 'udp'."
    assert refusal("net.wire_dtype=float16") == ("net.wire_dtype should be 'float32' or 'bfloat16': got 'float16'.")
