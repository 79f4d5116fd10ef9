"""Mixtures of Gaussians by soft partitions of the space of w, with a bound that rises with every part.

    1 = Σ_k r_k(w)   ⇒   log Z = log Σ_k ∫ r_k(w) p(w) dw ≥ log Σ_k exp B_k

(Bouchard and Zoeter 2009; Challis (2013), §3.10.) B_k is the Gaussian KL bound of the model with r_k among its factors.
Here r_k is a product of logistic gates σ(±(gᵀw + c)), the branches of a tree, so that a part is the same model with a
few logit sites more. It is the bound of the mixture Σ_k π_k N(m_k, S_k), π_k ∝ exp B_k, its entropy (3.10.1) bounded by

    H[q] ≥ Σ_k π_k (H[q_k] − log π_k + ⟨log r_k⟩_{q_k}),

which is as good as gates can tell the components apart, where Jensen's bound of (3.10.1) loses 0.15 nat per dimension
even for a single Gaussian. A gate of slope zero changes nothing: more parts never give a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp

from latlin.densities.density import Density, Mixture
from latlin.inference.evidence.terms import RefusedEvidence
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.model import LatentLinearModel, SiteFactor, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky
from latlin.potentials.logit import Logit

#: slope of a new gate, per standard deviation, and where it may stand
SLOPE = 2.0
PLACES = (-1.0, 0.0, 1.0)
#: directions of a new gate: of the covariance, and of the sites that a parabola describes worst
AXES, ROWS = 4, 4
#: gates per part that are tried a little, steps of those trials and of the best of them
TRIALS, SHORT, LONG = 3, 4, 40
#: some hundred fits each
MOST_COMPONENTS = 100
#: of the fits of parts, whose bounds are bounds at any tolerance
SPLIT_TOL = 1e-4
NO_GRADIENT = "the evidence of a mixture has no gradient here; use components=1"
HERMITE = np.polynomial.hermite_e.hermegauss(30)

Fit = Callable[[LatentLinearModel, Posterior | None], Posterior]
#: the gates that a part has passed, and on which side: (gate, ±1), …
Leaf = tuple[tuple[int, int], ...]


class Partition(NamedTuple):
    """Gates gᵀu + c in the units of the first posterior, one per row, the parts, their posteriors and their bound."""

    gates: Array
    leaves: tuple[Leaf, ...]
    parts: tuple[Posterior, ...]
    bound: float

    @property
    def density(self) -> Mixture:
        """Σ_k π_k q_k, π_k ∝ exp B_k."""
        bounds = np.array([part.log_evidence for part in self.parts])
        return Mixture(np.exp(bounds - bounds.max()), tuple(part.density for part in self.parts))


def split(model: LatentLinearModel, first: Posterior, fit: Fit, count: int) -> list[Partition]:
    """Partitions into 1, 2, … `count` parts, each from the one before; fewer where no gate raises the bound."""
    space = _Space(model, first, fit)
    found = [Partition(np.zeros((0, model.dim + 1)), ((),), (first,), first.log_evidence)]
    while len(found) < count:
        now = found[-1]
        trials = [space.climb(trial, SHORT) for trial in space.candidates(now)]
        best = space.climb(max(trials, key=lambda trial: trial.bound), LONG) if trials else now
        if not best.bound > now.bound:
            break
        found.append(best)
    return found


def join_parts(first: Posterior, found: list[Partition], requested: int, started: float) -> Posterior:
    """The last partition as a posterior, whose trace has the bounds of 1, 2, … parts; the first where it is alone."""
    bounds, last = np.array([partition.bound for partition in found]), found[-1]
    note = f"; with 1 to {len(found)} components the bound is {', '.join(f'{bound:.6g}' for bound in bounds)}"
    used = len(last.parts)
    if used < requested:
        note += f", and no gate raises it further, so {used} of {requested} were used"
    if used == 1:
        return replace(first, message=first.message + note)
    errors = [part.bound_error for part in last.parts]
    return replace(
        first,
        density=last.density,
        log_evidence=last.bound,
        evidence_kind="approximation" if first.evidence_kind == "approximation" else "lower bound",
        bound_error=max(errors),
        trace=bounds,
        elapsed=time.perf_counter() - started,
        message=first.message + note,
        sites=None,
        evidence_term=RefusedEvidence(NO_GRADIENT),
    )


def refit_parts(
    first: Posterior, partitions: list[Partition], fit: Callable[[LatentLinearModel], Posterior]
) -> list[Partition]:
    """The same parts with densities of another family, from its own posterior of the whole on.

    Parts that serve Gaussians best need not serve this family: in the place of a partition that loses, gates of slope
    zero would do as well as the one before, which stays.
    """
    found = [partitions[0]._replace(parts=(first,), bound=first.log_evidence)]
    for partition in partitions[1:]:
        parts = tuple(fit(require_in_memory(part.model)) for part in partition.parts)
        new = partition._replace(parts=parts, bound=_bound(parts))
        found.append(max(found[-1], new, key=lambda each: each.bound))
    return found


class _Space:
    """Fits of parts, in units u of the first posterior, w = m + Lu."""

    def __init__(self, model: LatentLinearModel, first: Posterior, fit: Fit) -> None:
        self._model, self._fit, self._mean = model, fit, first.mean
        self._root = cholesky(first.covariance(), name="the covariance", max_jitter=1e-8).factor.T

    def candidates(self, now: Partition) -> list[Partition]:
        """Each part divided by the gates that do best, of several directions and places."""
        best: list[Partition] = []
        for k, leaf in enumerate(now.leaves):
            found: list[Partition] = []
            mean, cov = self._moments(now.parts[k])
            for direction in self._directions(now.parts[k], cov):
                sd = np.sqrt(direction @ cov @ direction)
                for place in PLACES:
                    gate = SLOPE * np.append(direction / sd, -(direction @ mean) / sd - place)
                    divided = self._divide(now, k, leaf, gate)
                    found += [] if divided is None else [divided]
            best += sorted(found, key=lambda partition: -partition.bound)[:TRIALS]
        return best

    def climb(self, start: Partition, steps: int) -> Partition:
        """The best gates that quasi-Newton steps find from a partition, its parts fitted anew at each."""
        best = last = start

        def loss(point: Array) -> tuple[float, Array]:
            nonlocal best, last
            now = self._evaluate(point.reshape(start.gates.shape), start.leaves, last.parts)
            if now is None:
                return np.inf, np.zeros_like(point)
            last = now
            best = now if now.bound > best.bound else best
            return -now.bound, -self._slope(now).ravel()

        minimize(loss, start.gates.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps})
        return best

    def _divide(self, now: Partition, k: int, leaf: Leaf, gate: Array) -> Partition | None:
        gates, new = np.vstack([now.gates, gate]), len(now.gates)
        leaves = (*now.leaves[:k], *now.leaves[k + 1 :], (*leaf, (new, 1)), (*leaf, (new, -1)))
        kept = (*now.parts[:k], *now.parts[k + 1 :])
        halves = [self._part(gates, side, None) for side in leaves[-2:]]
        if halves[0] is None or halves[1] is None:
            return None
        parts = (*kept, halves[0], halves[1])
        return Partition(gates, leaves, parts, _bound(parts))

    def _evaluate(self, gates: Array, leaves: tuple[Leaf, ...], starts: tuple[Posterior, ...]) -> Partition | None:
        parts = []
        for leaf, start in zip(leaves, starts, strict=True):
            part = self._part(gates, leaf, start)
            if part is None:
                return None
            parts.append(part)
        return Partition(gates, leaves, tuple(parts), _bound(parts))

    def _part(self, gates: Array, leaf: Leaf, start: Posterior | None) -> Posterior | None:
        """The Gaussian of the model with its gates; None where no start has a finite bound."""
        which, sides = [gate for gate, _ in leaf], [side for _, side in leaf]
        rows = solve_triangular(self._root, gates[which, :-1].T, trans="T", lower=True).T
        factor = SiteFactor(rows, Logit(sides), offset=gates[which, -1] - rows @ self._mean)
        model = self._model.among([*self._model.gaussians, *self._model.sites, factor])
        try:
            return self._fit(model, start)
        except ValueError:
            return None

    def _slope(self, now: Partition) -> Array:
        """∂ log Σ exp B_k / ∂ gates = Σ_k π_k ∂⟨log σ(±(gᵀu + c))⟩; everything else is at its best."""
        total = np.zeros_like(now.gates)
        for part, leaf in zip(now.parts, now.leaves, strict=True):
            weight = np.exp(part.log_evidence - now.bound)
            mean, cov = self._moments(part)
            for gate, side in leaf:
                g, c = now.gates[gate, :-1], now.gates[gate, -1]
                _, d_mean, d_var = Logit(side).expected_log([g @ mean + c], [g @ cov @ g])
                total[gate] += weight * np.append(d_mean[0] * mean + 2.0 * d_var[0] * (cov @ g), d_mean[0])
        return total

    def _moments(self, part: Posterior) -> tuple[Array, Array]:
        """Of u."""
        half = solve_triangular(self._root, part.covariance(), lower=True)
        mean = solve_triangular(self._root, part.mean - self._mean, lower=True)
        return mean, solve_triangular(self._root, half.T, lower=True)

    def _directions(self, part: Posterior, cov: Array) -> list[Array]:
        """Directions of u: axes of the covariance, and rows of the sites that are least like parabolas."""
        axes = np.linalg.eigh(cov)[1].T
        ends = axes if len(axes) <= AXES else np.concatenate([axes[: AXES // 2], axes[-AXES // 2 :]])
        rows = _bent_rows(self._model, part.density)
        inner = [self._root.T @ row for row in rows]
        return [*ends, *(row / np.linalg.norm(row) for row in inner if np.any(row))]


def _bound(parts: Iterable[Posterior]) -> float:
    return float(logsumexp([part.log_evidence for part in parts]))


def _bent_rows(model: LatentLinearModel, density: Density) -> list[Array]:
    """Rows of the sites whose ψ differs most, in squares, from the best parabola under the Gaussian."""
    rows, sites = stacked_rows(model), stacked_sites(model)
    if not len(sites):
        return []
    marginals = density.project(rows)
    value, d_mean, d_var = sites.expected_log(marginals.mean, marginals.variance)
    z, weight = HERMITE[0][:, None], HERMITE[1] / HERMITE[1].sum()
    sd = np.sqrt(marginals.variance)
    rest = sites.log_density(marginals.mean + sd * z) - value - d_mean * sd * z - d_var * sd**2 * (z * z - 1.0)
    order = np.argsort(-(weight @ rest**2))[:ROWS]
    return [np.asarray(rows[[n]].toarray() if hasattr(rows, "toarray") else rows[n]).ravel() for n in order]
