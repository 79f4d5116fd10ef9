"""Factor analysis of a stream: one pass, constant memory, one d×K array.

Online EM (Brownlie (2021), Algorithm 2, corrected): the printed algorithm starts with F = 0 and stays there,
and moves the scale of the latents only at the rate of their posterior variance. Here a short warm-up block
gives the start by an SVD, the step sizes are γ_t = (t + t₀)^−κ, and every M-step expands the latents' covariance:
with the statistics Ā = E[d mᵀ] and H̄ = E[h hᵀ] = RRᵀ, F ← ĀH̄⁻¹R and then Ā ← ĀR⁻ᵀ, H̄ ← I. After that
Ā = F, so the loadings *are* the statistic and nothing else of size d×K is kept; likewise the second moment of a
coordinate is ψ + Σ_k F_k². One step with a block of b rows Y (centred on the old mean) after n others:

    m = M⁻¹FᵀΨ⁻¹Yᵀ,  V = mC,  H = (1−γ)I + γ(M⁻¹ + VmᵀC/b) = RRᵀ,
    Fᵀ ← R⁻¹((1−γ)Fᵀ + (γ/b) V Y),   ψ ← (1−γ)(ψ + ΣF²)_old + (γ/b) diag(YᵀCY) − (ΣF²)_new,

C = I − 11ᵀ/(n+b) (Welford). ψ ≥ 0 because (Ā, H̄, d̄²) is always an average of positive semidefinite moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latlin.factor.analysis.kernels import em_chunks, gram_chunks, n_runs, project_chunks
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import LowRankNormal, cholesky, slices_of, solve_upper, symmetrise

Floats = NDArray[np.floating]
#: coordinates of the warm-up that are taken in double precision at once
PIECE = 8192


@dataclass(frozen=True)
class StepSizes:
    """γ_t = (t + offset)^−power for the t-th observation.

    Parameters
    ----------
    offset : float
        t₀ ≥ 0.
    power : float
        κ in (½, 1]; 1 averages everything alike, less forgets the early steps faster.
    """

    offset: float = 0.0
    power: float = 0.97

    def __post_init__(self) -> None:
        if not 0.5 < self.power <= 1.0:
            raise ValueError(f"step_power must lie in (0.5, 1], got {self.power}")
        if self.offset < 0.0:
            raise ValueError(f"step_offset must not be negative, got {self.offset}")

    def block(self, count: int, size: int) -> float:
        """The weight 1 − ∏(1 − γ_t) of a block of `size` observations after `count` others."""
        gammas = (count + self.offset + 1.0 + np.arange(size)) ** -self.power
        return float(-np.expm1(np.log1p(-np.minimum(gammas, 0.999)).sum()))


@dataclass
class FactorState:
    """What a stream has learnt: N(mean, FFᵀ + Ψ), and how much it has seen. Arrays are updated in place.

    `gram` is FᵀΨ⁻¹F in float64; `floored` counts the noise variances that met their floor in the last update;
    `extra` belongs to the rule (Adam's moments, averages).
    """

    mean: Floats
    loadings: Floats
    noise: Floats
    gram: Array
    count: int
    updates: int
    floored: int
    tiny: float
    extra: dict[str, Floats]


@dataclass(frozen=True)
class BlockLatents:
    """The E-step for a block: m (K×b), V = mC (K×b), and E[hhᵀ] = M⁻¹ + Vmᵀ/b."""

    means: Array
    weights: Array
    second: Array


class StreamRule(Protocol):
    """How a stream learns from a block of rows."""

    @property
    def isotropic(self) -> bool:
        """One noise variance for all coordinates."""

    def begin(self, state: FactorState) -> None:
        """Put what the rule needs into `state.extra`."""

    def advance(self, state: FactorState, rows: Floats, latents: BlockLatents) -> None:
        """Move loadings, noise and mean by one block, in place; set `state.gram` and `state.floored`."""

    def density(self, state: FactorState) -> LowRankNormal:
        """What the rule holds for the distribution of the stream."""


@dataclass(frozen=True)
class OnlineEM:
    """The M-step above. `floor` is the least ψ as a share of the coordinate's variance."""

    steps: StepSizes = StepSizes()
    floor: float = 1e-6
    isotropic: bool = False

    def begin(self, state: FactorState) -> None:
        state.extra.clear()

    def advance(self, state: FactorState, rows: Floats, latents: BlockLatents) -> None:
        b, kind = len(rows), state.loadings.dtype
        keep = kind.type(np.sqrt(1.0 - self.steps.block(state.count, b)))
        gamma = 1.0 - float(keep) ** 2
        expanded = (1.0 - gamma) * np.eye(len(state.gram)) + gamma * latents.second
        root = cholesky(expanded, name="E[hhᵀ]").factor  # RRᵀ with R = rootᵀ
        inverse = solve_upper(root, np.eye(len(root)), transposed=True)
        mix = np.ascontiguousarray((1.0 - gamma) * inverse, dtype=kind)
        weights = np.ascontiguousarray((gamma / b) * inverse @ latents.weights, dtype=kind)
        partial, floored = make_room(state)
        em_chunks(
            state.loadings, state.noise, state.mean, rows, mix, weights,
            keep, state.count, self.floor, state.tiny, partial, floored,
        )  # fmt: skip
        finish(state, partial, floored, self.isotropic)

    def density(self, state: FactorState) -> LowRankNormal:
        return LowRankNormal(state.mean, state.loadings, state.noise)


def make_room(state: FactorState) -> tuple[Array, NDArray[np.int64]]:
    """Room for the sums of a pass: (runs, K, K) and (runs,)."""
    rank, dim = state.loadings.shape
    return np.zeros((n_runs(dim), rank, rank)), np.zeros(n_runs(dim), dtype=np.int64)


def finish(state: FactorState, partial: Array, floored: NDArray[np.int64], isotropic: bool) -> None:
    """Add up what a pass left; isotropic noise is the mean of the coordinates' residual variances."""
    if isotropic:
        state.noise[:] = state.noise.mean(dtype=np.float64)
        gram_chunks(state.loadings, state.noise, partial)
    state.gram = symmetrise(partial.sum(axis=0).T)
    state.floored = int(floored.sum())
    if not np.isfinite(state.gram).all():
        raise FloatingPointError(f"the loadings became non-finite at update {state.updates + 1}; lower learning_rate")


def expect(state: FactorState, rows: Floats) -> BlockLatents:
    """The E-step (3.26), (3.31) for a block of rows; refuses rows that are not finite."""
    b, rank = len(rows), len(state.gram)
    partial = np.empty((n_runs(rows.shape[1]), rank, b))
    project_chunks(state.loadings, state.noise, state.mean, rows, partial)
    projected = partial.sum(axis=0)
    if not np.isfinite(projected).all():
        raise ValueError("the rows of a block must be finite and of a size that the stream's precision can hold")
    precision = cholesky(np.eye(rank) + state.gram, name="I + FᵀΨ⁻¹F")
    means = precision.solve(projected)
    weights = means - means.sum(axis=1, keepdims=True) / (state.count + b)
    return BlockLatents(means, weights, precision.inverse() + weights @ means.T / b)


class WarmUp:
    """The first rows of a stream, and room for a state in their place: nothing else of their length is made.

    The first K of them are the rows of one array, which becomes Fᵀ; two others become the mean and the noise.
    """

    def __init__(self, dim: int, rank: int, size: int, kind: Any) -> None:
        self.loadings = np.empty((rank, dim), dtype=kind)
        self.others = [np.empty(dim, dtype=kind) for _ in range(size - rank)]
        self.filled = 0

    @property
    def size(self) -> int:
        return len(self.loadings) + len(self.others)

    @property
    def rows(self) -> list[Floats]:
        """The rows so far."""
        return [*self.loadings, *self.others][: self.filled]

    def take(self, rows: Floats) -> int:
        """Keep as many rows as there is room for; returns how many."""
        found = min(self.size - self.filled, len(rows))
        room = [*self.loadings, *self.others][self.filled : self.filled + found]
        for own, row in zip(room, rows, strict=False):
            own[:] = row
        self.filled += found
        return found

    def begin(self) -> FactorState:
        """The state after these rows, which are no more."""
        mean, noise = self.others[:2]
        return start_state(self.rows, self.loadings, mean, noise)


def start_state(
    rows: list[Floats], loadings: Floats, mean: Floats, noise: Floats, *, floor: float = 0.05
) -> FactorState:
    """The state after a warm-up block: principal axes of the block, scaled by what exceeds its noise.

    With eigenvalues λ of the block's covariance and λ̄ the mean of those after the K-th, F_k = √(λ_k − λ̄) u_k;
    ψ is what is left of each coordinate's variance, at least its share `floor`. When the block has no more
    than K + 1 rows the missing factors are zero and λ̄ = 0. The state's arrays may be those of the rows: a piece of
    the coordinates is written after it was read for the last time.
    """
    w, (rank, dim) = len(rows), loadings.shape
    scatter = np.zeros((w, w))
    for part in slices_of(dim, PIECE):
        _, y = _centred(rows, part)
        scatter += y @ y.T
    values, vectors = np.linalg.eigh(scatter / (w - 1))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    total = values.sum()
    if not np.isfinite(total) or total <= 0.0:
        raise ValueError(f"the first {w} observations must be finite and not all alike")
    used = min(rank, w - 1)
    rest = values[used : w - 1].mean() if w - 1 > used else 0.0
    # F_k = √(λ_k − λ̄) u_k with u_k = Yᵀv_k/√((w−1)λ_k)
    gains = np.sqrt(np.maximum(values[:used] - rest, 0.05 * values[:used]))
    gains /= np.sqrt(np.maximum(values[:used], 1e-300) * (w - 1))
    gains[values[:used] <= 1e-12 * total] = 0.0
    tiny = max(1e-10 * total / dim, 1e-30)
    for part in slices_of(dim, PIECE):
        centre, y = _centred(rows, part)
        f = (gains * vectors[:, :used]).T @ y
        variance = np.einsum("nd,nd->d", y, y) / (w - 1)
        mean[part] = centre
        noise[part] = np.maximum(np.maximum(variance - (f * f).sum(axis=0), floor * variance), tiny)
        loadings[:used, part], loadings[used:, part] = f, 0.0
    state = FactorState(mean, loadings, noise, np.zeros((rank, rank)), w, 0, 0, tiny, {})
    refresh_gram(state)
    return state


def _centred(rows: list[Floats], part: slice) -> tuple[Floats, Array]:
    """The mean of a piece of the coordinates, in the storage's precision, and the rows about it."""
    y = np.stack([row[part] for row in rows]).astype(np.float64)
    centre = y.mean(axis=0).astype(rows[0].dtype)
    return centre, y - centre


def refresh_gram(state: FactorState) -> None:
    """Recompute FᵀΨ⁻¹F from loadings and noise."""
    partial, _ = make_room(state)
    gram_chunks(state.loadings, state.noise, partial)
    state.gram = symmetrise(partial.sum(axis=0).T)


class FactorStream:
    """Feed it blocks of rows; ask it for the density.

    Parameters
    ----------
    dim, rank : int
        d and K.
    rule : Rule
        `OnlineEM` or one of the gradient rules.
    warm_up : int or None
        Rows kept before the first estimate; 2K by default, K + 4 where that is more.
    dtype : float32 or float64
        Storage; sums run in float64 either way.

    Examples
    --------
    >>> stream = FactorStream(dim=30, rank=2)
    >>> rng = np.random.default_rng(0)
    >>> for block in rng.standard_normal((10, 8, 30)):
    ...     stream.update(block)
    >>> stream.count, stream.density().loadings.shape
    (80, (2, 30))
    """

    def __init__(
        self,
        dim: int,
        rank: int,
        rule: StreamRule | None = None,
        *,
        warm_up: int | None = None,
        dtype: Any = np.float64,
    ) -> None:
        if not 1 <= rank < dim:
            raise ValueError(f"the number of factors must be at least 1 and less than the dimension {dim}, got {rank}")
        self.dim, self.rank = dim, rank
        self.rule: StreamRule = rule or OnlineEM()
        self.warm_up = max(2 * rank, rank + 4) if warm_up is None else warm_up
        if self.warm_up < rank + 2:
            raise ValueError(f"warm_up must be at least {rank + 2} for {rank} factors, got {self.warm_up}")
        self.dtype = np.dtype(dtype)
        self.state: FactorState | None = None
        self._waiting: WarmUp | None = None

    @property
    def count(self) -> int:
        """Observations seen."""
        waiting = 0 if self._waiting is None else self._waiting.filled
        return waiting if self.state is None else self.state.count

    @property
    def floored(self) -> int:
        """Noise variances at their floor after the last update."""
        return 0 if self.state is None else self.state.floored

    def update(self, rows: Floats) -> None:
        """Learn from one observation (d,) or a block (b, d)."""
        rows = np.ascontiguousarray(np.atleast_2d(rows), dtype=self.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"rows must have {self.dim} columns, got shape {rows.shape}")
        if self.state is None:
            rows = self._wait(rows)
        if self.state is not None and len(rows):
            self.rule.advance(self.state, rows, expect(self.state, rows))
            self.state.count += len(rows)
            self.state.updates += 1

    def density(self) -> LowRankNormal:
        """The current N(c, FFᵀ + Ψ); its arrays are the stream's own."""
        if self.state is not None:
            return self.rule.density(self.state)
        if self._waiting is None or self.count < 2:
            raise ValueError(f"a density needs at least 2 observations, got {self.count}")
        loadings, mean, noise = (np.empty(shape, self.dtype) for shape in ((self.rank, self.dim), self.dim, self.dim))
        early = start_state(self._waiting.rows, loadings, mean, noise)
        return LowRankNormal(early.mean, early.loadings, early.noise)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the stream would need to go on, as arrays (the stream's own, not copies)."""
        if self.state is None:
            rows = [] if self._waiting is None else self._waiting.rows
            return {"waiting": np.array(rows, dtype=self.dtype).reshape(len(rows), self.dim)}
        s = self.state
        numbers = np.array([s.count, s.updates, s.floored])
        kept = {"mean": s.mean, "loadings": s.loadings, "noise": s.noise, "gram": s.gram}
        extra = {f"extra_{name}": value for name, value in s.extra.items()}
        return kept | extra | {"numbers": numbers, "tiny": np.array(s.tiny)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `arrays` gave."""
        if "waiting" in arrays:
            self.state, self._waiting = None, None
            self._wait(np.asarray(arrays["waiting"], dtype=self.dtype))
            return
        if arrays["loadings"].shape != (self.rank, self.dim):
            shape = arrays["loadings"].shape
            raise ValueError(f"the state has loadings of shape {shape}, this stream {(self.rank, self.dim)}")
        mean, loadings, noise = (np.array(arrays[name], dtype=self.dtype) for name in ("mean", "loadings", "noise"))
        extra = {name[6:]: np.array(value) for name, value in arrays.items() if name.startswith("extra_")}
        count, updates, floored = (int(value) for value in arrays["numbers"])
        gram = np.array(arrays["gram"], dtype=np.float64)
        tiny = float(arrays["tiny"])
        self.state = FactorState(mean, loadings, noise, gram, count, updates, floored, tiny, extra)
        self._waiting = None

    def _wait(self, rows: Floats) -> Floats:
        """Keep rows until the warm-up is complete, then start; returns the rows that are left."""
        if not np.isfinite(rows.sum(axis=1, dtype=np.float64)).all():
            raise ValueError("the rows of a block must be finite")
        if self._waiting is None:
            self._waiting = WarmUp(self.dim, self.rank, self.warm_up, self.dtype)
        taken = self._waiting.take(rows)
        if self._waiting.filled == self.warm_up:
            self.state, self._waiting = self._waiting.begin(), None
            if self.rule.isotropic:
                self.state.noise[:] = self.state.noise.mean(dtype=np.float64)
                refresh_gram(self.state)
            self.rule.begin(self.state)
        return rows[taken:]
