"""Stochastic gradient ascent on the likelihood of a factor model (Brownlie (2021), Algorithm 1, corrected).

For a block of rows, with A = E[d mᵀ] and H = E[h hᵀ] of the E-step, the gradients of the mean log-likelihood are

    ∇_F = Ψ⁻¹(A − FH)                          (3.27)
    ∇_β = ½(E[(d − Fh)²]/ψ − 1),  β = log ψ     (3.28), (3.29)

`PlainGradient` and `AdamAscent` follow them as they are. Both move the scale of the latents as slowly as EM does.
`ScaledGradient` preconditions ∇_F by Ψ + ½FFᵀ, the metric of the expanded model in which the latents' covariance
is free: FᵀΨ⁻¹(A − FH) = H − I, so (Ψ + ½FFᵀ)∇_F = A − ½F(H + I), and ∇_β by its inverse Fisher information 2.
The running mean is θ̄_t = θ̄_{t−1} + (θ_t − θ̄_{t−1})/t, corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.factor.analysis.kernels import (
    adam_chunks,
    average_chunks,
    gradient_chunks,
    scaled_gradient_chunks,
)
from latlin.factor.analysis.stream import (
    BlockLatents,
    FactorState,
    FactorStream,
    OnlineEM,
    StepSizes,
    StreamRule,
    finish,
    make_room,
)
from latlin.factor.fit import FactorFit
from latlin.numerics.linalg import LowRankNormal
from latlin.numerics.options import check_choice
from latlin.numerics.progress import progress

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class TailAverage:
    """Polynomial-decay averaging: the t-th iterate enters with weight (η + 1)/(t + η), so the start fades."""

    decay: float = 8.0

    def begin(self, state: FactorState) -> None:
        state.extra["mean_loadings"] = state.loadings.copy()
        state.extra["mean_log_noise"] = np.log(state.noise)[None]

    def advance(self, state: FactorState) -> None:
        weight = (self.decay + 1.0) / (state.updates + 1.0 + self.decay)
        average_chunks(state.extra["mean_loadings"], state.loadings, weight)
        average_chunks(state.extra["mean_log_noise"], np.log(state.noise)[None], weight)

    def density(self, state: FactorState) -> LowRankNormal:
        return LowRankNormal(state.mean, state.extra["mean_loadings"], np.exp(state.extra["mean_log_noise"][0]))


@dataclass(frozen=True)
class LastIterate:
    """No averaging."""

    def begin(self, state: FactorState) -> None:
        return

    def advance(self, state: FactorState) -> None:
        return

    def density(self, state: FactorState) -> LowRankNormal:
        return LowRankNormal(state.mean, state.loadings, state.noise)


def _inputs(state: FactorState, latents: BlockLatents, size: int) -> tuple[Floats, Floats]:
    """H, and V/b with A = Yᵀ(V/b)ᵀ, in the storage's precision."""
    kind = state.loadings.dtype
    second = np.ascontiguousarray(latents.second, dtype=kind)
    return second, np.ascontiguousarray(latents.weights / size, dtype=kind)


def _move(
    step: ScaledGradient | PlainGradient,
    chunks: Callable[..., None],
    state: FactorState,
    inputs: tuple[Floats, Floats, Floats],
    rate: float,
) -> None:
    """A step of length `rate` in every chunk of coordinates."""
    partial, floored = make_room(state)
    kind = state.loadings.dtype.type
    chunks(
        state.loadings, state.noise, state.mean, *inputs,
        kind(rate), state.count, state.tiny, partial, floored,
    )  # fmt: skip
    finish(state, partial, floored, step.isotropic)
    step.averaging.advance(state)


@dataclass(frozen=True)
class ScaledGradient:
    """F ← F + α(Ψ + ½FFᵀ)∇_F, β ← β + 2α∇_β with α = learning_rate·γ_t, at most what keeps the step stable."""

    steps: StepSizes = field(default_factory=StepSizes)
    learning_rate: float = 1.0
    averaging: TailAverage | LastIterate = LastIterate()
    isotropic: bool = False

    def begin(self, state: FactorState) -> None:
        self.averaging.begin(state)

    def advance(self, state: FactorState, rows: Floats, latents: BlockLatents) -> None:
        # F shrinks by I − ½α(H + I): α below 2/(λ_max(H) + 1) keeps that positive
        largest = float(np.linalg.eigvalsh(latents.second)[-1])
        rate = min(self.learning_rate * self.steps.block(state.count, len(rows)), 1.0 / (largest + 1.0))
        _move(self, scaled_gradient_chunks, state, (rows, *_inputs(state, latents, len(rows))), rate)

    def density(self, state: FactorState) -> LowRankNormal:
        return self.averaging.density(state)


@dataclass(frozen=True)
class PlainGradient:
    """Algorithm 1: F ← F + α∇_F, β ← β + α∇_β with α = learning_rate·(1 + updates)^−½."""

    learning_rate: float = 0.01
    averaging: TailAverage | LastIterate = TailAverage()
    isotropic: bool = False

    def begin(self, state: FactorState) -> None:
        self.averaging.begin(state)

    def advance(self, state: FactorState, rows: Floats, latents: BlockLatents) -> None:
        rate = self.learning_rate / np.sqrt(1.0 + state.updates)
        _move(self, gradient_chunks, state, (rows, *_inputs(state, latents, len(rows))), rate)

    def density(self, state: FactorState) -> LowRankNormal:
        return self.averaging.density(state)


@dataclass(frozen=True)
class AdamAscent:
    """Adam on (F, β) with α = learning_rate·(1 + updates)^−½."""

    learning_rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    averaging: TailAverage | LastIterate = TailAverage()
    isotropic: bool = False

    def begin(self, state: FactorState) -> None:
        rank, dim = state.loadings.shape
        state.extra["moments"] = np.zeros((2, rank + 1, dim), dtype=state.loadings.dtype)
        self.averaging.begin(state)

    def advance(self, state: FactorState, rows: Floats, latents: BlockLatents) -> None:
        second, weights = _inputs(state, latents, len(rows))
        betas = np.array(self.betas)
        corrections = 1.0 / (1.0 - betas ** (state.updates + 1))
        partial, floored = make_room(state)
        adam_chunks(
            state.loadings, state.noise, state.mean, rows, second, weights,
            self.learning_rate / np.sqrt(1.0 + state.updates), state.count, state.tiny, partial, floored,
            state.extra["moments"], betas, corrections,
        )  # fmt: skip
        finish(state, partial, floored, self.isotropic)
        self.averaging.advance(state)

    def density(self, state: FactorState) -> LowRankNormal:
        return self.averaging.density(state)


# --- From the estimator's options to a stream, and a fit by passes over data in memory.


def _expectation_maximisation(options: Any, isotropic: bool) -> StreamRule:
    return OnlineEM(StepSizes(options.step_offset, options.step_power), options.noise_floor, isotropic)


def _gradient(options: Any, isotropic: bool) -> StreamRule:
    averaging = TailAverage() if options.average else LastIterate()
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    check_choice("optimizer", options.optimizer, ("scaled", "sgd", "adam"))
    if options.optimizer == "scaled":
        steps = StepSizes(options.step_offset, options.step_power)
        return ScaledGradient(steps, averaging=averaging, isotropic=isotropic, **rate)
    if options.optimizer == "sgd":
        return PlainGradient(averaging=averaging, isotropic=isotropic, **rate)
    return AdamAscent(averaging=averaging, isotropic=isotropic, **rate)


RULES: dict[str, Callable[[Any, bool], StreamRule]] = {
    "online-em": _expectation_maximisation,
    "gradient": _gradient,
}


def open_stream(options: Any, dim: int, dtype: np.dtype) -> FactorStream:
    """A stream as the estimator's parameters describe it."""
    rule = RULES[options.method](options, options.noise == "isotropic")
    return FactorStream(dim, options.n_components, rule, warm_up=options.warm_up, dtype=dtype)


def feed(stream: FactorStream, rows: np.ndarray, batch_size: int) -> None:
    """Give the rows to the stream in blocks of `batch_size`."""
    for start in range(0, len(rows), batch_size):
        stream.update(rows[start : start + batch_size])


def stream_fit(stream: FactorStream, rows: np.ndarray, options: Any, random: np.random.Generator) -> FactorFit:
    """`n_passes` over the rows, in random order when `shuffle`; the trace has the log-likelihood after each."""
    trace = []
    with progress(f"factor analysis ({options.method})", options.n_passes, options.verbose) as bar:
        for _ in range(options.n_passes):
            order = random.permutation(len(rows)) if options.shuffle else np.arange(len(rows))
            for start in range(0, len(rows), options.batch_size):
                stream.update(rows[order[start : start + options.batch_size]])
            trace.append(float(stream.density().logpdf(rows).sum()))
            bar.advance(f"log-likelihood {trace[-1]:.6g}")
    mean, loadings, noise = (np.array(part, dtype=np.float64) for part in stream.density())
    text = f"{options.n_passes} pass(es) over {len(rows)} rows"
    return FactorFit(mean, loadings, noise, np.array(trace), True, stream.count, text)
