"""What a design asks of a covariance: where it is least certain, rows to choose among, gains of information."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh
from scipy.special import logit, xlogy

from latlin.densities.gaussian import DenseCovariance, Gaussian
from latlin.densities.precision import SubspaceCovariance
from latlin.densities.structured.base import StructuredCovariance
from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.predictive import ClassPredictive, ContinuousPredictive, CountPredictive

# --- What an answer is expected to tell: the mutual information of an observation y and its projection x ~ N(m, s²).
#
#     I(y; x) = ∑_y ∫ N(x | m, s²) p(y | x) log p(y | x) dx − ∑_y p(y) log p(y),   p(y) = ∫ N(x | m, s²) p(y | x) dx,
#
# with an integral over y where it is a real number. For Gaussian noise it is ½ log(1 + s²/ν²).


#: probability of the outcomes that are left out at either end, and the most that may be missing in all
TAIL, MISSING = 1e-9, 1e-6
#: values of a real answer at which its density is taken
VALUES = 400
#: most counts that are summed over one by one
MOST_COUNTS = 20_000


def expected_information(likelihood: Potential, mean: Array, variance: Array) -> Array:
    """I(y; x) in nat, for answers of the family of `likelihood` (whose own observations play no role)."""
    mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
    outcomes, log_widths = _outcomes(likelihood, mean, variance)
    inner, outer, mass = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(mean)
    for y, log_width in zip(outcomes, log_widths, strict=True):
        block = likelihood.observe(y)
        x, _, weights = quadrature.gaussian_nodes(mean, np.sqrt(variance), block.regions())
        # densities of real answers times their widths are probabilities; the widths cancel in the difference
        log_p = block.log_density(x) + log_width
        p = np.exp(log_p)
        inner += np.einsum("ks,ks->s", weights, xlogy(p, p))
        total = np.einsum("ks,ks->s", weights, p)
        outer += xlogy(total, total)
        mass += total
    if np.any(np.abs(mass - 1.0) > MISSING):
        raise _refusal(likelihood)
    return np.maximum(inner - outer, 0.0)


def _refusal(likelihood: Potential) -> ValueError:
    return ValueError(
        "likelihood must be a family whose answers are classes, counts or numbers with a density that can be summed or "
        f"integrated over, got {likelihood!r}"
    )


def equivalent_noise(gain: Array, variance: Array) -> Array:
    """The variance of Gaussian noise under which an answer would tell as much: ½ log(1 + s²/ν²) = I."""
    return variance / np.maximum(np.expm1(2.0 * gain), np.finfo(float).tiny)


def _outcomes(likelihood: Potential, mean: Array, variance: Array) -> tuple[Any, Any]:
    """Values of the answers, each one number per row, and the logs of their widths."""
    predictive = likelihood.predictive(mean, variance)
    if isinstance(predictive, ClassPredictive):
        classes = predictive.probabilities.shape[-1]
        return [np.full(mean.shape, float(k)) for k in range(classes)], np.zeros((classes, 1))
    if isinstance(predictive, CountPredictive):
        last = int(predictive.quantile(np.full(mean.shape, 1.0 - TAIL)).max(initial=0.0))
        if last > MOST_COUNTS:
            raise ValueError(f"likelihood has likely counts of up to {last}; at most {MOST_COUNTS} can be summed over")
        return [np.full(mean.shape, float(k)) for k in range(last + 1)], np.zeros((last + 1, 1))
    if not isinstance(predictive, ContinuousPredictive):
        raise _refusal(likelihood)
    support = predictive._support
    ends = [predictive.quantile(np.full(mean.shape, q)) for q in (TAIL, 1.0 - TAIL)]
    inverse = {(-np.inf, np.inf): np.asarray, (0.0, np.inf): np.log, (0.0, 1.0): logit}[support.low, support.high]
    with np.errstate(divide="ignore"):
        low, high = (inverse(end) for end in ends)
    if not np.all(np.isfinite(low) & np.isfinite(high)):
        # some answers have a probability of their own, such as amounts of zero
        raise _refusal(likelihood)
    # the trapezoid rule in the coordinate in which y is any real number
    t = low + np.linspace(0.0, 1.0, VALUES)[:, None] * (high - low)
    log_width = np.log(np.maximum((high - low) / (VALUES - 1), np.finfo(float).tiny))
    return support.place(t), support.log_slope(t) + log_width


#: dimension up to which a covariance without structure is decomposed
DENSE = 512


def covariance_operator(density: Gaussian) -> LinearOperator:
    """Products with S, at the cost of its structure."""
    structure: Any = density.structure
    if isinstance(structure, StructuredCovariance):
        return _structured(structure)
    if isinstance(structure, SubspaceCovariance):
        return _subspace(structure)
    if isinstance(structure, DenseCovariance):
        return LinearOperator((structure.dim,) * 2, matvec=structure.times, matmat=structure.times, dtype=float)
    return aslinearoperator(density.covariance())


def leading_directions(density: Gaussian, count: int) -> Array:
    """Eigenvectors of S with the largest eigenvalues, one per row, largest first; their largest entry is positive."""
    dim = len(density.mean)
    structured = isinstance(density.structure, StructuredCovariance | SubspaceCovariance)
    if not structured or count >= dim - 1:
        if dim > DENSE and not structured:
            return _oriented(_lanczos(covariance_operator(density), count))
        return _oriented(eigh(density.covariance(), subset_by_index=[dim - count, dim - 1])[1].T[::-1])
    return _oriented(_lanczos(covariance_operator(density), count))


def greedy_rows(
    density: Gaussian, candidates: Array, gain: Callable[[Array, Array], Array], count: int
) -> NDArray[np.intp]:
    """Indices of candidates, each of largest information gain given those before it.

    Parameters
    ----------
    gain : callable
        Nat by the means and the variances of projections.

    A chosen row counts as a measurement with Gaussian noise that has the same information.
    """
    images = covariance_operator(density).matmat(np.ascontiguousarray(candidates.T))
    means, variances = candidates @ density.mean, np.einsum("nd,dn->n", candidates, images)
    chosen: list[int] = []
    shared: list[Array] = []
    for _ in range(count):
        gains = gain(means, np.maximum(variances, 0.0))
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        # S ← S − S x xᵀS / (xᵀSx + ν²), seen from every candidate
        column = candidates @ images[:, best] - sum((v * v[best] for v in shared), np.zeros(len(candidates)))
        noise = equivalent_noise(gains[best], column[best])
        shared.append(column / np.sqrt(column[best] + noise))
        variances = variances - shared[-1] ** 2
        chosen.append(best)
    return np.array(chosen)


def _lanczos(operator: LinearOperator, count: int) -> Array:
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    return eigsh(operator, k=count, which="LA", v0=start, tol=1e-6)[1].T[::-1]


def _oriented(rows: Array) -> Array:
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return np.ascontiguousarray(rows * np.sign(largest)[:, None])


def _structured(structure: StructuredCovariance) -> LinearOperator:
    factor, scale = structure.structure.factor(structure.theta), structure.whitening.scale

    def times(block: Array) -> Array:
        return (scale * np.asarray(factor.T @ (factor @ (scale * block.T).T)).T).T

    return LinearOperator((structure.dim,) * 2, matvec=times, matmat=times, dtype=float)


def _subspace(structure: SubspaceCovariance) -> LinearOperator:
    basis, c2 = structure.basis, structure.complement**2

    def times(block: Array) -> Array:
        # hL for a row is (Lᵀhᵀ)ᵀ
        inner = structure.whitening.rows(np.atleast_2d(block.T)).T
        inside = basis.T @ inner
        mixed = c2 * (inner - basis @ inside) + basis @ structure.inner.solve(np.asfortranarray(inside))
        return structure.whitening.apply(mixed).reshape(block.shape)

    return LinearOperator((structure.dim,) * 2, matvec=times, matmat=times, dtype=float)
