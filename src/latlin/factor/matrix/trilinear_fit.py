"""Three factors in turn: each one given the other two, then scales, priors and the likelihood.

Source: Challis (2013), §4.6.1, with one factor more. The latents of the entries of the modes are (u, a, 1, 1),
(v, 1, b, 1) and (t, 1, 1, c), the ones without spread, so that

    z = Σ_k u_k v_k t_k + a + b + c = Σ_d x_d y_d s_d

is one trilinear form. To the first mode the other two are one vector w = y ∘ s per cell, of which a parabola asks for

    ⟨w⟩ = ⟨y⟩ ∘ ⟨s⟩,   ⟨wwᵀ⟩ = ⟨yyᵀ⟩ ∘ ⟨ssᵀ⟩

only. So energies that are functions of the mean and variance of z are those of `latlin.factor.matrix.energies`, with
one column per cell. ⟨e^z⟩ is infinite for a product of three Gaussians: counts with rate e^z have no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latlin.factor.matrix.energies import Cells, Energy, Index, MomentEnergy, Side
from latlin.factor.matrix.fit import FIRST_SPREAD, LEAST, SidePrior, improve, learn_likelihood, negative_divergence
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.potentials.families import Family

MODES = 3
#: sweeps after which several starts are compared
ROUGH_SWEEPS = 15


class TrilinearState(NamedTuple):
    """Gaussians and priors of the three modes, the parameters of the likelihood, and the bound."""

    sides: tuple[Side, ...]
    priors: tuple[SidePrior, ...]
    parameters: dict[str, Any]
    bound: float


@dataclass(frozen=True)
class TrilinearProblem:
    """The observed cells (their positions in every mode) and the options: what stays fixed."""

    at: tuple[Index, ...]
    values: Array
    family: Family
    shape: tuple[int, ...]
    rank: int
    below: bool

    def energy(self, parameters: dict[str, Any]) -> Energy:
        potential = self.family.potential(self.values, parameters)
        return MomentEnergy(potential, self.below and potential.super_gaussian)

    @cached_property
    def cells(self) -> Cells:
        """As the first mode sees them: one column per cell."""
        return self.seen_from(0)

    def seen_from(self, mode: int) -> Cells:
        return Cells(self.at[mode], np.arange(len(self.values)))

    def step(self, state: TrilinearState) -> tuple[TrilinearState, Measure]:
        """Each mode, the scales, priors, likelihood; every part raises the bound."""
        energy, sides = self.energy(state.parameters), list(state.sides)
        for mode in range(MODES):
            others = product_of_others(self.at, sides, mode)
            free = free_coordinates(self.rank, mode)
            sides[mode], _ = improve(energy, self.seen_from(mode), sides[mode], others, state.priors[mode], free)
        sides = balance(sides, self.rank)
        priors = learn_priors(sides, self.rank)
        parameters = learn_likelihood(self, state.parameters, sides[0], product_of_others(self.at, sides, 0))
        new = TrilinearState(tuple(sides), priors, parameters, 0.0)
        new = new._replace(bound=self.bound(new))
        return new, Measure(new.bound, (new.bound - state.bound) / max(len(self.values), 1))

    def bound(self, state: TrilinearState) -> float:
        """The bound, every constant included."""
        others = product_of_others(self.at, list(state.sides), 0)
        total = float(self.energy(state.parameters).values(self.cells, state.sides[0], others).sum())
        for mode, (side, prior) in enumerate(zip(state.sides, state.priors, strict=True)):
            total += float(negative_divergence(side, prior, free_coordinates(self.rank, mode)).sum())
        return total


def free_coordinates(rank: int, mode: int) -> list[int]:
    """The coordinates of a mode that are not constant: its latents and its intercept."""
    return [*range(rank), rank + mode]


def product_of_others(at: tuple[Index, ...], sides: list[Side], mode: int) -> Side:
    """w = y ∘ s of every cell: its mean, and its covariance ⟨yyᵀ⟩ ∘ ⟨ssᵀ⟩ − ⟨w⟩⟨w⟩ᵀ."""
    (i, first), (j, second) = ((at[m], sides[m]) for m in range(MODES) if m != mode)
    mean = first.mean[i] * second.mean[j]
    square = (first.moments[i] * second.moments[j]).reshape(len(mean), mean.shape[1], mean.shape[1])
    return Side(mean, square - mean[:, :, None] * mean[:, None, :])


def balance(sides: list[Side], rank: int) -> list[Side]:
    """u_k ← u_k/σ, t_k ← σt_k, σ² the average of ⟨u_k²⟩, and v likewise; the relevances fall.

    It leaves z and is the best scale: −½Σ⟨u²⟩/σ² − n log σ is largest there, and what t gains its variance loses.
    """
    turned, last = [], np.ones(rank)
    for side in sides[:-1]:
        size = np.sqrt(np.mean(side.mean[:, :rank] ** 2 + np.einsum("nkk->nk", side.cov)[:, :rank], axis=0))
        turned.append(stretched(side, 1.0 / size))
        last = last * size
    turned.append(stretched(sides[-1], last))
    relevance = np.mean(turned[-1].mean[:, :rank] ** 2 + np.einsum("nkk->nk", turned[-1].cov)[:, :rank], axis=0)
    order = np.concatenate([np.argsort(-relevance, kind="stable"), np.arange(rank, rank + MODES)])
    return [Side(side.mean[:, order], side.cov[:, order[:, None], order[None, :]]) for side in turned]


def stretched(side: Side, size: Array) -> Side:
    """The first latents of a mode times these numbers."""
    full = np.append(size, np.ones(side.mean.shape[1] - len(size)))
    return Side(side.mean * full, side.cov * np.outer(full, full))


def learn_priors(sides: list[Side], rank: int) -> tuple[SidePrior, ...]:
    """Variances of all intercepts; relevances r_k of the last mode and the mean of its intercepts."""
    priors = []
    for mode, side in enumerate(sides):
        free = free_coordinates(rank, mode)
        mean, spread = side.mean[:, free], np.einsum("nkk->nk", side.cov)[:, free]
        centre, last = np.zeros(rank + 1), mode == MODES - 1
        if last:
            centre[rank] = mean[:, rank].mean()
        variance = np.maximum(np.mean((mean - centre) ** 2 + spread, axis=0), LEAST)
        if not last:
            variance[:rank] = 1.0
        priors.append(SidePrior(centre, variance))
    return tuple(priors)


# --- The climb


def begin(
    problem: TrilinearProblem, codes: Array, parameters: dict[str, Any], rng: np.random.Generator | None
) -> TrilinearState:
    """Margins, and leading components of the unfolded rest; random components where a generator is given."""
    rank, seen = problem.rank, ~np.isnan(codes)
    margins: list[Array] = []
    rest = codes
    for mode in reversed(range(MODES)):
        axes = tuple(m for m in range(MODES) if m != mode)
        # shrunk by one cell, so that entries of few cells do not run away; the last mode has the mean
        count = seen.sum(axis=axes) + (mode != MODES - 1)
        margin = np.where(seen, rest, 0.0).sum(axis=axes) / np.maximum(count, 1)
        rest = rest - margin.reshape([-1 if m == mode else 1 for m in range(MODES)])
        margins.insert(0, margin)
    latents = components(np.where(seen, rest, 0.0), rank, rng)
    sides = [as_side(latent, margin, mode) for mode, (latent, margin) in enumerate(zip(latents, margins, strict=True))]
    sides = balance(sides, rank)
    state = TrilinearState(tuple(sides), learn_priors(sides, rank), parameters, -np.inf)
    return state._replace(bound=problem.bound(state))


def components(rest: Array, rank: int, rng: np.random.Generator | None) -> list[Array]:
    """Latents of the three modes to start from."""
    spread = rng or np.random.default_rng(0)
    if rng is not None:
        size = float(rest.std() / np.sqrt(rank)) ** (1.0 / MODES)
        return [size * rng.standard_normal((n, rank)) for n in rest.shape]
    found = [0.1 * spread.standard_normal((n, rank)) for n in rest.shape]
    left, sizes, right = np.linalg.svd(rest.reshape(rest.shape[0], -1), full_matrices=False)
    for k in range(min(rank, len(sizes))):
        inner, values, outer = np.linalg.svd(right[k].reshape(rest.shape[1:]), full_matrices=False)
        size = max(sizes[k] * values[0], 1e-8) ** (1.0 / MODES)
        for latent, vector in zip(found, (left[:, k], inner[:, 0], outer[0]), strict=True):
            latent[:, k] = size * vector
    return found


def as_side(latent: Array, margin: Array, mode: int) -> Side:
    """Gaussians of little spread about latents and intercepts, ones elsewhere."""
    n, rank = latent.shape
    mean = np.column_stack([latent, np.ones((n, MODES))])
    mean[:, rank + mode] = margin
    diagonal = np.zeros(rank + MODES)
    diagonal[free_coordinates(rank, mode)] = FIRST_SPREAD
    return Side(mean, np.tile(np.diag(diagonal), (n, 1, 1)))


def climb_from_starts(
    problem: TrilinearProblem, starts: list[TrilinearState], rules: Rules, verbose: bool
) -> Ascent[TrilinearState]:
    """Sweeps from the start that is highest after a few of them."""
    if len(starts) > 1:
        rough = Rules(rules.gradient_tol, np.inf, ROUGH_SWEEPS, True)
        ends = [ascend(problem.step, start, rough, label="start", warn=False).state for start in starts]
        starts = [max(ends, key=lambda end: end.bound)]
    return ascend(problem.step, starts[0], rules, label="trilinear factorisation", verbose=verbose)
