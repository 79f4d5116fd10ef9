"""Stochastic natural gradients on a stream: constant memory, one pass.

What is remembered are moments *per row*; a block moves them by ρ_t towards its own, and the belief is that of the
number of rows the stream stands for. Source: Gutteridge (2021), eqs. 4.13–4.15.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.mixture.model import Belief, Mixture
from latlin.mixture.moments import ComponentMoments, combine, scaled
from latlin.mixture.schedules import RobbinsMonro, StepRule
from latlin.mixture.sweep import CompleteRows, slices
from latlin.numerics.stored import storable


@storable
class Stream(NamedTuple):
    """Where a stream stands."""

    mixture: Mixture
    share: ComponentMoments  # moments of one average row
    seen: float  # total weight of the rows so far
    t: int
    bound: float


STREAM_STEP = RobbinsMonro(delay=10.0)


def belief_of(stream: Stream, size: float | None) -> Belief:
    """q given the moments of as many rows as the stream stands for."""
    return stream.mixture.belief(scaled(stream.share, stream.seen if size is None else size))


def begin(mixture: Mixture, moments: ComponentMoments) -> Stream:
    """A stream that has seen nothing but starts from these moments."""
    return Stream(mixture, scaled(moments, 1.0 / moments.counts.sum()), 0.0, 0, -np.inf)


def absorb(stream: Stream, block: CompleteRows, step: StepRule, batch_size: int, size: float | None) -> Stream:
    """One natural-gradient step per mini-batch of the block."""
    for part in slices(len(block), batch_size):
        weights = None if block.weights is None else block.weights[part]
        stream = _advance(stream, CompleteRows(block.values[part], weights), step, size)
    return stream


def _advance(stream: Stream, batch: CompleteRows, step: StepRule, size: float | None) -> Stream:
    mixture, own = stream.mixture, batch.total
    stream = stream._replace(seen=stream.seen + own)
    whole = stream.seen if size is None else max(size, stream.seen)
    belief = belief_of(stream, whole)
    evaluation = mixture.evaluate(batch, belief)
    # the bound, its sum over rows estimated from this batch: (N/S) Σ ln Σ_k ρ_nk − KL
    kl = mixture.kl(belief)
    bound = whole / own * (evaluation.bound + kl) - kl
    rho = min(step.length(stream.t), 1.0)  # type: ignore[attr-defined]
    target = scaled(evaluation.moments, 1.0 / own)
    share = combine(mixture.components, stream.share, 1.0 - rho, target, rho)
    return stream._replace(share=share, t=stream.t + 1, bound=bound)
