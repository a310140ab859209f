"""Encoding matrices for gradient coding, and how well conditioned they are.

Shapes: N = workers = partitions, C = load, S = missing workers, D = dimension of the left null space,
P = patterns of missing workers. Everything is float64.

A code is *conditioned* by its largest effective weight |alpha_{j,k}| = N |a_j B_{j,k}| over the patterns of
missing workers: the float32 error of a decoded gradient is about 5e-8 times that (schemes.md section 3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

from pgczmq.core import seeds
from pgczmq.core.placement import Placement, cyclic
from pgczmq.errors import ConfigError

Floats = NDArray[np.float64]

ALPHA_LIMIT = 1000.0
"""Above this largest |alpha| a code is refused: float32 gradients would lose about four of seven digits."""

PATTERNS_AT_MOST = 50_000
DRAWS_AT_MOST = 400
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Code:
    """What worker j multiplies its places' gradients with.

    Args:
        name: how it was made, for people.
        coefficients_NC: row j are the coefficients of worker j's places 0..C-1.
        rank: rank of the encoding matrix; N - rank workers may be missing.
        max_alpha: largest |alpha| over patterns of the stragglers it was chosen for; NaN when not scored.
    """

    name: str
    coefficients_NC: Floats
    rank: int
    max_alpha: float

    @cached_property
    def encode_NN(self) -> Floats:
        """The encoding matrix of a cyclic placement."""
        return encoding_matrix(self.coefficients_NC, cyclic(*self.coefficients_NC.shape))


def encoding_matrix(coefficients_NC: Floats, placement: Placement) -> Floats:
    """B: row j holds worker j's coefficients at the partitions it holds, else 0."""
    workers = placement.workers
    encode = np.zeros((workers, workers))
    encode[np.arange(workers)[:, None], np.array(placement.held)] = coefficients_NC
    return encode


def ones(workers: int, load: int) -> Floats:
    """Coefficients of the schemes that just add: (workers, load) ones."""
    return np.ones((workers, load))


def random_cyclic(workers: int, load: int, generator: np.random.Generator) -> Floats:
    """A random code on a cyclic placement that any ``workers - load + 1`` workers decode.

    Returns:
        (workers, load) coefficients, rows of unit norm.
    Source: Pipelined Gradient Coding, Sec. III; Tandon et al., Algorithm 2.
    """
    if load == 1:
        return np.ones((workers, 1))
    check = generator.standard_normal((load - 1, workers))
    check[:, -1] = -check[:, :-1].sum(axis=1)
    held = np.array(cyclic(workers, load).held)
    columns = np.moveaxis(check[:, held], 0, 1)  # (N, C-1, C)
    rest = np.linalg.solve(columns[:, :, 1:], -columns[:, :, :1])[:, :, 0]
    rows = np.concatenate([np.ones((workers, 1)), rest], axis=1)
    normed: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normed


def cyclic_mds(workers: int, load: int) -> Floats:
    """The real Reed-Solomon code on the unit circle; a circulant, so all rows are alike.

    Raises:
        ConfigError: it is real only when ``workers - load`` is even.
    Returns:
        (workers, load) coefficients, rows of unit norm.
    Source: Raviv et al., arXiv 1707.03858; Halbawi et al., arXiv 1706.05436; schemes.md section 3.
    """
    if (workers - load) % 2:
        raise ConfigError(
            'code = "cyclic-mds" is real only when workers - load is even (load is stragglers + 1 unless set): '
            f"got workers={workers}, load={load}. "
            f"Nearest valid: load={load + 1}, workers={workers + 1}"
            + (f" or workers={workers - 1}." if workers - 1 >= load else ".")
        )
    offset = np.arange(load)[:, None] - np.arange(load, workers)[None, :]
    logs = np.log(np.abs(np.sin(np.pi * offset / workers))).sum(axis=1)
    row = np.exp(logs - logs.max())
    return np.tile(row / np.linalg.norm(row), (workers, 1))


def choose(workers: int, load: int, *, stragglers: int, kind: str, seed: int) -> Code:
    """The best conditioned code of the kind asked for.

    Args:
        workers: N.
        load: partitions a worker holds, at least ``stragglers + 1``.
        stragglers: how many workers may be missing; the code is scored on these patterns.
        kind: "auto", "random" or "cyclic-mds".
        seed: of the random draws.

    Raises:
        ConfigError: no code of this kind has |alpha| <= ALPHA_LIMIT; names the nearest that do.
    """
    code = _best(workers, load, stragglers=stragglers, kind=kind, seed=seed)
    if code.max_alpha <= ALPHA_LIMIT:
        return code
    found = f"{code.max_alpha:.3g}" if np.isfinite(code.max_alpha) else f"over {ALPHA_LIMIT:g}"
    raise ConfigError(
        f"cyclic gradient coding needs a well conditioned code (largest |alpha| at most {ALPHA_LIMIT:g}): got "
        f"workers={workers}, stragglers={stragglers}, load={load}, whose best code has {found}. "
        + _well_conditioned_nearby(workers, load, stragglers, kind)
    )


def one_draw(workers: int, load: int, *, seed: int) -> Code:
    """A single random code, unscored: what the papers' naive pipelined scheme uses."""
    generator = seeds.rng(seed, "code", workers, load, 0)
    return Code("random (one draw)", random_cyclic(workers, load, generator), workers - load + 1, float("nan"))


def _best(workers: int, load: int, *, stragglers: int, kind: str, seed: int) -> Code:
    if load == 1 and stragglers == 0:
        return Code("ones", ones(workers, 1), workers, 1.0)
    candidates: list[Code] = []
    if kind == "cyclic-mds" or (kind == "auto" and (workers - load) % 2 == 0):
        rows = cyclic_mds(workers, load)
        score = largest_alpha(rows, stragglers)
        candidates.append(Code("cyclic MDS", rows, workers - load + 1, score))
    if kind == "random" or not candidates:
        candidates.append(_best_draw(workers, load, stragglers=stragglers, seed=seed))
    return min(candidates, key=lambda code: code.max_alpha)


def _best_draw(workers: int, load: int, *, stragglers: int, seed: int) -> Code:
    """The best of many random draws: more of them where scoring is cheap."""
    patterns = min(comb(workers, stragglers), PATTERNS_AT_MOST)
    draws = int(np.clip(4_000_000 // (patterns * workers), 20, DRAWS_AT_MOST))
    best, best_rows = np.inf, None
    for draw in range(draws):
        rows = random_cyclic(workers, load, seeds.rng(seed, "code", workers, load, draw))
        score = largest_alpha(rows, stragglers, give_up_above=best)
        if best_rows is None or score < best:
            best, best_rows = score, rows
    assert best_rows is not None
    return Code(f"random (best of {draws})", best_rows, workers - load + 1, best)


def largest_alpha(coefficients_NC: Floats, stragglers: int, give_up_above: float = np.inf) -> float:
    """Largest |alpha| over patterns of ``stragglers`` missing workers.

    All of them while there are at most PATTERNS_AT_MOST, else that many sampled ones and the consecutive ones.

    Args:
        coefficients_NC: code on a cyclic placement.
        stragglers: S.
        give_up_above: stop and return infinity once a pattern is worse than this.
    """
    workers, load = coefficients_NC.shape
    row_max = np.abs(coefficients_NC).max(axis=1)
    encode_NN = encoding_matrix(coefficients_NC, cyclic(workers, load))
    start_N, null_ND = decoding_basis(encode_NN, workers - load + 1)
    worst = 0.0
    for missing_PS in _patterns(workers, stragglers):
        weights_PN = start_N + _corrections(start_N, null_ND, missing_PS) @ null_ND.T
        np.put_along_axis(weights_PN, missing_PS, 0.0, axis=1)
        worst = max(worst, float(np.nan_to_num(np.abs(weights_PN * row_max), nan=np.inf).max()))
        if worst > give_up_above:
            return float("inf")
    return worst


def decoding_basis(encode_NN: Floats, rank: int) -> tuple[Floats, Floats]:
    """What all decoding vectors of a code have in common: a = start + null @ z.

    Args:
        encode_NN: B.
        rank: of B, known from its construction rather than found by a tolerance.

    Returns:
        The minimum-norm a with a^T B = 1^T for all workers, (N,); an orthonormal basis of the left null space
        of B, (N, N - rank).
    """
    left, singular, right = np.linalg.svd(encode_NN)
    inverse = left[:, :rank] @ ((right[:rank] @ np.ones(len(encode_NN))) / singular[:rank])
    return inverse, left[:, rank:]


def _corrections(start_N: Floats, null_ND: Floats, missing_PS: NDArray[np.intp]) -> Floats:
    """For every pattern the minimum-norm z, (P, D), that takes the missing workers' weights to zero."""
    missing, null = missing_PS.shape[1], null_ND.shape[1]
    if missing == 0:
        return np.zeros((len(missing_PS), null))
    rows = null_ND[missing_PS]  # (P, S, D)
    target = -start_N[missing_PS][:, :, None]
    try:
        inverse = np.linalg.inv(rows) if missing == null else np.linalg.pinv(rows)
        return np.asarray(inverse @ target, dtype=np.float64)[:, :, 0]
    except np.linalg.LinAlgError:
        return np.full((len(missing_PS), null), np.inf)


def _patterns(workers: int, missing: int) -> Iterator[NDArray[np.intp]]:
    """Blocks of patterns of missing workers; the consecutive ones first, as they tend to be the worst."""
    yield (np.arange(workers)[:, None] + np.arange(missing)[None, :]) % workers
    if comb(workers, missing) <= PATTERNS_AT_MOST:
        every = combinations(range(workers), missing)
        while block := list(islice(every, _BLOCK)):
            yield np.array(block, dtype=np.intp).reshape(len(block), missing)
        return
    generator = seeds.rng(0, "patterns", workers, missing)
    for _ in range(PATTERNS_AT_MOST // _BLOCK):
        yield np.argpartition(generator.random((_BLOCK, workers)), missing, axis=1)[:, :missing]


def _well_conditioned_nearby(workers: int, load: int, stragglers: int, kind: str) -> str:
    """The sentence that says what would work instead: cyclic MDS codes close by."""
    drawn = kind == "random"  # asked for a draw, so that the real code of the same size may be what works
    options = [(f"load={load + more}", workers, load + more, stragglers) for more in range(0 if drawn else 1, 3)]
    options += [(f"workers={n} with load={load}", n, load, stragglers) for n in (workers - 1, workers + 1)]
    options += [(f"stragglers={s} with load={s + 1}", workers, s + 1, s) for s in range(stragglers - 1, 0, -1)]
    working = []
    for name, n, held, missing in options:
        if held > n or (n - held) % 2:
            continue
        alpha = largest_alpha(cyclic_mds(n, held), missing)
        if alpha <= ALPHA_LIMIT:
            working.append(f"{name} (|alpha| {alpha:.3g})")
    if not working:
        return "gc-fr has no such limit where load divides workers."
    automatic = ', all with code = "auto"' if drawn else ""
    return f"Nearest that are{automatic}: {', '.join(working[:3])}; gc-fr has no such limit where load divides workers."
