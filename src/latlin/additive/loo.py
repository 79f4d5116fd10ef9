"""Leave-one-out without refits, from the cavities of the sites.

At given hyperparameters the posterior is the prior times Gaussian stand-ins of the sites; dividing one of them out
leaves the posterior without that row, and the integral of its likelihood over this *cavity* is its leave-one-out
density (Vehtari and others 2016). Rows change the posterior of the hyperparameters θ too,
p(θ | y₋ₙ) ∝ p(θ | y)/p(yₙ | y₋ₙ, θ), so that densities at several θ are averaged harmonically. A whole group is left
out in the same way, all at once. Rows in blocks are left out where they are, in one pass: a stand-in of Gaussian KL
follows from the marginal of its row, so that nothing needs to be kept of a fit. The rows of some groups at a time are
brought together from all blocks, as many groups as fit into one table of limited length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from latlin.distributed.dask_blocks import FrameRows
from latlin.inference.blocks import Observed
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.evidence.terms import CurvedEvidence, ExpectedEvidence, TiltedEvidence
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer
from latlin.inference.laplace import Laplace
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.predictive import censored_levels

#: share of the effective number of hyperparameter values that a row must leave
SPREAD = 0.2
#: rows of a table into which groups of rows in blocks are brought together
TOGETHER = 100_000


@dataclass(frozen=True)
class LeaveOneOut:
    """Log densities of rows (or groups) that were left out.

    Attributes
    ----------
    pointwise : array of shape (n,)
        log p(yₙ | the others), one number per row or per group.
    pit : array of shape (n,)
        P(new observation ≤ yₙ | the others), with half of P(= yₙ) for counts: uniform where the model is right. Of a
        censored time the middle of where it may be. Empty for groups.
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
        count = f"{len(self.pointwise)} {what} left out one by one, without refits"
        said = f"log predictive density {self.elpd:.2f} ± {self.se:.2f}, summed over {count}"
        if len(self.influential):
            said += f"; {len(self.influential)} of them move the hyperparameters far: refit without these to be sure"
        return said


def leave_out(
    components: Sequence[PredictedComponent],
    fits: Sequence[Posterior],
    problem: AdditiveProblem | None,
    frame: Any,
    group: str | None,
) -> LeaveOneOut:
    """Leave out rows, or all rows of each label of a column, wherever the training rows are."""
    if not fits or problem is None:
        raise ValueError("loo() needs the training rows, which a model from a file does not have")
    if isinstance(problem, BlockProblem):
        _refuse_other_stand_ins(fits)
        out = leave_one_out_of_blocks if group is None else partial(leave_group_out_of_blocks, group=group)
        return out(components, problem)
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
    found = np.array([[_group_out(fit, problem, *one) for one in members] for fit in fits])
    return _result_of_groups(log_share, found, names)


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
    return _result_of_rows(found if problem.copies is None else found[:, problem.copies])


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


def _result_of_rows(found: Array) -> LeaveOneOut:
    return LeaveOneOut(found[0], found[1], found[2], found[3], np.arange(found.shape[1]))


def _result_of_groups(log_share: Array, logs: Array, names: NDArray[Any]) -> LeaveOneOut:
    """From log densities of groups, one row for each value of the hyperparameters."""
    pointwise = _harmonic(log_share, logs)
    spread = _spread(np.exp(log_share[:, None] - logs + pointwise), np.exp(log_share))
    return LeaveOneOut(pointwise, np.zeros(0), np.zeros(0), spread, names)


def _refuse_other_stand_ins(fits: Sequence[Posterior]) -> None:
    other = next((fit.engine for fit in fits if not isinstance(fit.evidence_term, ExpectedEvidence)), None)
    if other is not None:
        raise ValueError(f"loo() of rows in blocks needs the engine 'gkl' or 'exact', got {other!r}")


def leave_one_out_of_blocks(components: Sequence[PredictedComponent], problem: BlockProblem) -> LeaveOneOut:
    """Leave out rows that are in blocks, in one pass; four numbers per row come back."""
    readings = [problem.reading(component.values) for component in components]
    log_share = np.log([component.share for component in components])
    found = problem.blocks.each(leave_rows_out, readings, [component.density for component in components], log_share)
    return _result_of_rows(np.concatenate(found, axis=1))


def leave_rows_out(block: Block, readings: list[AdditiveReading], densities: list[Any], log_share: Array) -> Array:
    """What leaving out one row after the other gives, of shape (4, rows of the block).

    The cavity of a row has the precision 1/s² − γ and the mean m − g · variance.
    """
    parts = []
    for reading, density in zip(readings, densities, strict=True):
        seen = reading(block)
        mean, s2, gamma, g = _stand_ins(seen, density)
        k = np.clip(gamma * s2, None, 1.0 - 1e-6)
        variance = s2 / (1.0 - k)
        cavity = Cavity(mean - variance * g, variance, k)
        y = observe(reading.read.response, reading.family, block.X, reading.classes).y
        parts.append(_left_out(seen.potential, cavity, y, reading.family.whole))
    return _mixed(log_share, parts)


def _stand_ins(seen: Observed, density: Any) -> tuple[Array, Array, Array, Array]:
    """Means m and variances s² of linear predictors, and of their stand-ins γ = −2w ∂⟨ψ⟩/∂s² and g = w ∂⟨ψ⟩/∂m."""
    at, sites = density.project(sparse.csr_array(seen.rows)), seen.sites
    mean, s2 = np.asarray(at.mean) + sites.offset, np.maximum(np.asarray(at.variance), 1e-300)
    expected = seen.potential.expected_log(mean, s2)
    return mean, s2, -2.0 * sites.weight * expected.d_var, sites.weight * expected.d_mean


def leave_group_out_of_blocks(
    components: Sequence[PredictedComponent], problem: BlockProblem, group: str
) -> LeaveOneOut:
    """Leave out all rows of each label of a column, wherever they are: one pass to count them, and one per table."""
    labels, counts = zip(*problem.blocks.each(count_labels, group), strict=True)
    names, codes = np.unique(np.concatenate(labels), return_inverse=True)
    # labels of one table after the other, each of at most `TOGETHER` rows or of one label
    ends = np.cumsum(np.bincount(codes, np.concatenate(counts)))
    tables = np.split(names, np.flatnonzero(np.diff(ends // TOGETHER)) + 1)
    found = [_groups_together(components, problem, group, some) for some in tables]
    log_share = np.log([component.share for component in components])
    return _result_of_groups(log_share, np.concatenate(found, axis=1), names)


def count_labels(block: Block, group: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The labels of a block, and how many rows each has."""
    names, counts = np.unique(column(block.X, group), return_counts=True)
    return names, counts


def select_labelled(block: Block, group: str, labels: NDArray[Any]) -> FrameRows:
    """The rows of a block that have one of the labels."""
    return FrameRows.of(block.X)[np.isin(column(block.X, group), labels)]


def _groups_together(
    components: Sequence[PredictedComponent], problem: BlockProblem, group: str, names: NDArray[Any]
) -> Array:
    """log p(y_group | the others) of some groups at every value of the hyperparameters."""
    parts = problem.blocks.each(select_labelled, group, names)
    table = FrameRows.of({name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns})
    codes = np.searchsorted(names, column(table, group))
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    found = []
    for component in components:
        seen = problem.reading(component.values)(Block(table))
        mean, _, gamma, g = _stand_ins(seen, component.density)
        H, offset = sparse.csr_array(seen.rows), seen.sites.offset
        # −½γx² + νx has the slope g at m
        nu = g + gamma * (mean - offset)
        groups = [Observed(H[k], seen.potential.select(k), None, offset[k]) for k in members]
        stand_ins = [(gamma[k], nu[k]) for k in members]
        engine = GaussianKL()
        found.append(
            [_evidence_left_out(component.density, *one, engine) for one in zip(groups, stand_ins, strict=True)]
        )
    return np.array(found)


def _weight(problem: AdditiveProblem) -> Array:
    """How often each row of the problem stands in the table."""
    weight = problem.observed.weight
    return weight if weight is not None and problem.copies is not None else np.ones(len(problem.observed.y))


def _pit(potential: Potential, at: Cavity, y: Array, whole: bool) -> Array:
    described = potential.predictive(at.mean, at.variance)
    event = getattr(potential, "event", None)
    if event is not None:
        beside = (np.broadcast_to(part, y.shape) for part in (event, getattr(potential, "upper", y)))
        low, upper = censored_levels(described, np.column_stack([y, *beside]))
    else:
        upper = described.cdf(y)
        low = described.cdf(y - 1.0) if whole else upper
    return np.asarray(0.5 * (low + upper))


def _group_out(fit: Posterior, problem: AdditiveProblem, rows: NDArray[np.int64], count: NDArray[np.int64]) -> float:
    """log p(y_group | the others) at one value of the hyperparameters."""
    assert fit.sites is not None  # checked by the caller
    share = count / _weight(problem)[rows]
    gamma, nu = (share * np.asarray(part)[rows] for part in fit.sites)
    H = problem.design[rows]
    # stand-ins count from the prior mean: −½γ(x − s)² + ν(x − s) has the linear part ν + γs
    nu = nu + gamma * (H @ problem.mean)
    (site,) = require_in_memory(fit.model).sites
    seen = Observed(H, site.potential.select(rows), count.astype(float), problem.offset[rows])
    return _evidence_left_out(fit.density, seen, (gamma, nu), _engine_of(fit))


def _evidence_left_out(density: Any, seen: Observed, stand_ins: tuple[Array, Array], engine: Engine) -> float:
    """The evidence of some rows under the posterior without their stand-ins, as a small model of its own.

    Of v, the coefficients w that these rows have or their linear predictors Hw, whatever is fewer, with the rows
    x = Rv and the posterior N(m, S): without RᵀΓR and Rᵀν the covariance is (I − SRᵀΓR)⁻¹S and the mean
    (I − SRᵀΓR)⁻¹(m − SRᵀν).
    """
    H, (gamma, nu) = seen.rows, stand_ins
    used = np.unique(H.indices)
    few = len(used) < H.shape[0]
    B = sparse.csr_array(sparse.eye_array(H.shape[1], format="csr")[used]) if few else H
    R = H[:, used].toarray() if few else np.eye(H.shape[0])
    S = np.asarray(B @ density.times_covariance(B.T.toarray()))
    turn = np.eye(len(S)) - S @ (R.T * gamma) @ R
    mean = np.linalg.solve(turn, B @ np.asarray(density.mean) - S @ (R.T @ nu))
    values, vectors = np.linalg.eigh(_symmetric(np.asarray(np.linalg.solve(turn, S), float)))
    kept = values > 1e-12 * max(values.max(), 1e-300)
    root = R @ (vectors[:, kept] * np.sqrt(values[kept]))
    sites = SiteFactor(root, seen.potential, seen.weight, R @ mean + seen.sites.offset)
    return float(infer(LatentLinearModel([GaussianFactor(dim=root.shape[1]), sites]), engine).log_evidence)


def _engine_of(fit: Posterior) -> Engine:
    """The engine whose evidence is of the same kind as that of a fit; Gaussian KL for others."""
    match fit.evidence_term:
        case TiltedEvidence(power=power):
            return ExpectationPropagation(power=power)
        case CurvedEvidence():
            return Laplace()
    return GaussianKL()


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)
