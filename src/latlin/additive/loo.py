"""Leave-one-out without refits, from the cavities of the sites.

At given hyperparameters the posterior is the prior times Gaussian stand-ins of the sites; dividing one of them out
leaves the posterior without that row, and the integral of its likelihood over this *cavity* is its leave-one-out
density (Vehtari and others 2016). Rows change the posterior of the hyperparameters θ too,
p(θ | y₋ₙ) ∝ p(θ | y)/p(yₙ | y₋ₙ, θ), so that densities at several θ are averaged harmonically. A whole group is left
out in the same way, all at once. Rows in blocks are left out where they are, in one pass: a stand-in of Gaussian KL
follows from the marginal of its row, so that nothing needs to be kept of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from latlin.additive.blocks import AdditiveReading, BlockProblem
from latlin.additive.family import observe
from latlin.additive.frame import column
from latlin.additive.predict import PredictedComponent
from latlin.additive.problem import AdditiveProblem, Cavity, cavities
from latlin.distributed.blocks import Block
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.evidence.engine_terms import CurvedEvidence, ExpectedEvidence, TiltedEvidence
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer
from latlin.inference.laplace import Laplace
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor, in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

#: share of the effective number of hyperparameter values that a row must leave
SPREAD = 0.2


@dataclass(frozen=True)
class LeaveOneOut:
    """Log densities of rows (or groups) that were left out.

    Attributes
    ----------
    pointwise : array of shape (n,)
        log p(yₙ | the others), one number per row or per group.
    pit : array of shape (n,)
        P(new observation ≤ yₙ | the others), with half of P(= yₙ) for counts: uniform where the model is right. Empty
        for groups.
    pareto_k : array of shape (n,)
        How far a row decides about its own linear predictor, from 0 to 1: the shape of the tail of the weights that
        importance sampling would need for it, which fails beyond 0.7. Cavities do not need it. Empty for groups.
    spread : array of shape (n,)
        Effective number of values of the hyperparameters without the row, as a share of that with it: where it is
        small, the row moves the hyperparameters to where few of them were tried.
    labels : array
        Rows, or labels of groups.
    """

    pointwise: Array
    pit: Array
    pareto_k: Array
    spread: Array
    labels: NDArray[Any]

    @property
    def elpd(self) -> float:
        """The sum of the log densities; larger is better."""
        return float(self.pointwise.sum())

    @property
    def se(self) -> float:
        """Standard error of `elpd` as an estimate for new data like these."""
        return float(np.sqrt(len(self.pointwise) * np.var(self.pointwise, ddof=1)))

    @property
    def influential(self) -> NDArray[Any]:
        """Labels of rows or groups that move the hyperparameters far: refit without them to be sure."""
        return np.asarray(self.labels[np.flatnonzero(self.spread < SPREAD)])

    def compare(self, other: LeaveOneOut) -> tuple[float, float]:
        """`elpd` less that of another model of the same rows, and the standard error of the difference, in pairs."""
        if len(other.pointwise) != len(self.pointwise):
            raise ValueError(
                f"models can be compared on the same rows only, got {len(self.pointwise)} and {len(other.pointwise)}"
            )
        difference = self.pointwise - other.pointwise
        return float(difference.sum()), float(np.sqrt(len(difference) * np.var(difference, ddof=1)))

    def __repr__(self) -> str:
        what = "rows" if len(self.pareto_k) else "groups"
        said = f"elpd {self.elpd:.2f} ± {self.se:.2f} ({len(self.pointwise)} {what} left out one by one, no refits)"
        if len(self.influential):
            said += f"; {len(self.influential)} of them move the hyperparameters far: refit without these to be sure"
        return said


def left_out(
    components: Sequence[PredictedComponent],
    fits: Sequence[Posterior],
    problem: AdditiveProblem | None,
    frame: Any,
    group: str | None,
) -> LeaveOneOut:
    """Leave out rows, or all rows of each label of a column, wherever the training rows are."""
    if not fits or problem is None:
        raise ValueError("loo() needs the training rows, which a model from a file does not have")
    if isinstance(problem, BlockProblem) and group is None:
        return leave_one_out_of_blocks(components, fits, problem)
    if frame is None:
        raise ValueError(f"loo({group!r}) needs the rows of a group in one place: fit to a table in memory")
    return leave_one_out(components, fits, problem, None if group is None else column(frame, group))


def leave_one_out(
    components: Sequence[PredictedComponent],
    fits: Sequence[Posterior],
    problem: AdditiveProblem,
    labels: NDArray[Any] | None,
) -> LeaveOneOut:
    """Leave out rows, or all rows of each label."""
    if any(fit.sites is None for fit in fits):
        engine = fits[0].engine
        raise ValueError(f"loo() needs an engine with stand-ins of sites ('ep', 'gkl', 'laplace'), got {engine!r}")
    log_share = np.log([component.share for component in components])
    if labels is None:
        return _rows_out(components, fits, problem, log_share)
    names, codes = np.unique(labels, return_inverse=True)
    rows = np.arange(len(codes)) if problem.copies is None else problem.copies
    members = [np.unique(rows[codes == k], return_counts=True) for k in range(len(names))]
    found = np.array([_groups_out(fit, problem, members) for fit in fits])
    pointwise = _harmonic(log_share, found)
    spread = _spread(np.exp(log_share[:, None] - found + pointwise), np.exp(log_share))
    return LeaveOneOut(pointwise, np.zeros(0), np.zeros(0), spread, names)


def _spread(without: Array, share: Array) -> Array:
    """Effective numbers 1/Σ share², without a row or group over those with it."""
    return np.asarray(np.sum(share**2) / np.sum(without**2, axis=0))


def _harmonic(log_share: Array, logs: Array) -> Array:
    """−log Σ_k share_k / p_k."""
    return np.asarray(-logsumexp(log_share[:, None] - logs, axis=0))


def _rows_out(
    components: Sequence[PredictedComponent], fits: Sequence[Posterior], problem: AdditiveProblem, log_share: Array
) -> LeaveOneOut:
    y, whole = problem.observed.y, problem.family.whole
    parts = []
    for component, fit in zip(components, fits, strict=True):
        at = cavities(fit, problem.design, problem.mean, problem.offset, 1.0 / _weight(problem))
        parts.append(_left_out(problem.family.potential(problem.observed, component.values), at, y, whole))
    found = _mixed(log_share, parts)
    return _told(found if problem.copies is None else found[:, problem.copies])


def _left_out(potential: Potential, at: Cavity, y: Array, whole: bool) -> Array:
    """Log densities, levels and k of rows at one value of the hyperparameters, of shape (3, n)."""
    return np.array([potential.tilted_moments(at.mean, at.variance).log_z, _pit(potential, at, y, whole), at.pareto_k])


def _mixed(log_share: Array, parts: list[Array]) -> Array:
    """Log densities, levels, k and spreads of rows, averaged over the hyperparameters: shape (4, n)."""
    logs, levels, ks = np.stack(parts, axis=1)
    pointwise, shares = _harmonic(log_share, logs), np.exp(log_share)
    # shares of the hyperparameters without the row
    share = np.exp(log_share[:, None] - logs + pointwise)
    return np.array([pointwise, np.sum(share * levels, axis=0), shares @ ks, _spread(share, shares)])


def _told(found: Array) -> LeaveOneOut:
    return LeaveOneOut(found[0], found[1], found[2], found[3], np.arange(found.shape[1]))


def leave_one_out_of_blocks(
    components: Sequence[PredictedComponent], fits: Sequence[Posterior], problem: BlockProblem
) -> LeaveOneOut:
    """Leave out rows that are in blocks, in one pass; four numbers per row come back."""
    other = next((fit.engine for fit in fits if not isinstance(fit.evidence_term, ExpectedEvidence)), None)
    if other is not None:
        raise ValueError(f"loo() of rows in blocks needs the engine 'gkl' or 'exact', got {other!r}")
    readings = [problem.reading(component.values) for component in components]
    log_share = np.log([component.share for component in components])
    found = problem.blocks.each(rows_left_out, readings, [component.density for component in components], log_share)
    return _told(np.concatenate(found, axis=1))


def rows_left_out(block: Block, readings: list[AdditiveReading], densities: list[Any], log_share: Array) -> Array:
    """What leaving out one row after the other gives, of shape (4, rows of the block).

    With g = ∂⟨ψ⟩/∂m and γ = −2 ∂⟨ψ⟩/∂s² of a row with weight w, the cavity has the precision 1/s² − wγ and the mean
    m − w g · variance.
    """
    parts = []
    for reading, density in zip(readings, densities, strict=True):
        seen = reading(block)
        at, sites = density.project(sparse.csr_array(seen.rows)), seen.sites
        mean, s2 = np.asarray(at.mean) + sites.offset, np.maximum(np.asarray(at.variance), 1e-300)
        expected = seen.potential.expected_log(mean, s2)
        k = np.clip(-2.0 * sites.weight * expected.d_var * s2, None, 1.0 - 1e-6)
        variance = s2 / (1.0 - k)
        cavity = Cavity(mean - variance * sites.weight * expected.d_mean, variance, k)
        y = observe(reading.read.response, reading.family, block.X, reading.classes).y
        parts.append(_left_out(seen.potential, cavity, y, reading.family.whole))
    return _mixed(log_share, parts)


def _weight(problem: AdditiveProblem) -> Array:
    """How often each row of the problem stands in the table."""
    weight = problem.observed.weight
    return weight if weight is not None and problem.copies is not None else np.ones(len(problem.observed.y))


def _pit(potential: Potential, at: Cavity, y: Array, whole: bool) -> Array:
    described = potential.predictive(at.mean, at.variance)
    upper = described.cdf(y)
    return np.asarray(0.5 * (upper + described.cdf(y - 1.0)) if whole else upper)


def _groups_out(
    fit: Posterior, problem: AdditiveProblem, members: list[tuple[NDArray[Any], NDArray[Any]]]
) -> list[float]:
    """log p(y_group | the others) of every group at one value of the hyperparameters."""
    return [_group_out(fit, problem, rows, count) for rows, count in members]


def _group_out(fit: Posterior, problem: AdditiveProblem, rows: NDArray[np.int64], count: NDArray[np.int64]) -> float:
    """The cavity of several rows: covariance S(I − ΓS)⁻¹ and mean (I − SΓ)⁻¹(m − Sν); then a small model of its own."""
    assert fit.sites is not None  # checked by the caller
    share = count / _weight(problem)[rows]
    gamma, nu = (share * np.asarray(part)[rows] for part in fit.sites)
    H = problem.design[rows]
    start = H @ problem.mean
    S = joint_covariance(fit, H)
    m = np.asarray(fit.project(H).mean) - start
    turn = np.eye(len(rows)) - S * gamma
    mean = np.linalg.solve(turn, m - S @ nu)
    values, vectors = np.linalg.eigh(_symmetric(np.asarray(np.linalg.solve(turn, S), float)))
    kept = values > 1e-12 * max(values.max(), 1e-300)
    root = vectors[:, kept] * np.sqrt(values[kept])
    (site,) = in_memory(fit.model).sites
    offset = mean + start + problem.offset[rows]
    sites = SiteFactor(root, site.potential.select(rows), weight=count.astype(float), offset=offset)
    small = LatentLinearModel([GaussianFactor(dim=root.shape[1]), sites])
    return float(infer(small, _engine_of(fit)).log_evidence)


def _engine_of(fit: Posterior) -> Engine:
    """The engine whose evidence is of the same kind as that of a fit; Gaussian KL for others."""
    match fit.evidence_term:
        case TiltedEvidence(power=power):
            return ExpectationPropagation(power=power)
        case CurvedEvidence():
            return Laplace()
    return GaussianKL()


def joint_covariance(fit: Posterior, H: Any) -> Array:
    """H S Hᵀ of some rows."""
    density: Any = fit.density
    if hasattr(density, "joint_covariance"):
        return np.asarray(density.joint_covariance(H))
    used = np.unique(H.indices)
    part = H[:, used].toarray()
    return np.asarray(part @ density.covariance()[np.ix_(used, used)] @ part.T)


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)
