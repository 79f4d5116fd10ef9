"""New rows: the posterior of their linear predictors, and of new observations.

Everything about one row is one-dimensional: the predictor is hᵀw, and an observation's distribution is that of the
potential integrated over it, by quadrature or in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from latlin.densities.density import Mixture, MixtureMarginals, NormalMarginals
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.potentials.averaged import AveragedPredictive
from latlin.potentials.base import Potential
from latlin.potentials.checks import UnboundedExpectation
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.predictive import LocationPredictive, Predictive


class LinearPredictors(NamedTuple):
    """Linear predictors of some rows, offsets included in the mean."""

    mean: Array
    variance: Array
    offset: Array
    marginals: Any

    def quantile(self, q: Array) -> Array:
        """Quantiles of shape (n, len(q)); the mean where there is no uncertainty."""
        if not np.any(self.variance > 0.0):
            return np.tile(self.mean[:, None], (1, len(q)))
        return np.asarray(self.marginals.quantile(q[:, None])).T + self.offset[:, None]


def predictors_of(posterior: Posterior, rows: Any, offset: Array | None) -> LinearPredictors:
    """The linear predictors of rows."""
    marginals = posterior.project(rows)
    shift = np.zeros(len(marginals.mean)) if offset is None else offset
    return LinearPredictors(marginals.mean + shift, np.maximum(marginals.variance, 0.0), shift, marginals)


@dataclass(frozen=True)
class AveragedLikelihood:
    """Potentials at several hyperparameters, with the weights of the parts of a posterior that is their mixture."""

    weights: Array
    parts: tuple[Potential, ...]

    def observe(self, y: ArrayLike) -> AveragedLikelihood:
        """The sites of observations y."""
        return self.changed(lambda part: part.observe(y))

    def replace(self, **arguments: Any) -> AveragedLikelihood:
        """With other arguments of the constructors."""
        return self.changed(lambda part: part.replace(**arguments))

    def changed(self, f: Callable[[Potential], Potential]) -> AveragedLikelihood:
        """A function of every part."""
        return AveragedLikelihood(self.weights, tuple(f(part) for part in self.parts))

    def predictive(self, mean: ArrayLike, var: ArrayLike) -> Predictive:
        """The distribution of new observations at linear predictors that do not depend on hyperparameters."""
        return AveragedPredictive(self.weights, [part.predictive(mean, var) for part in self.parts])


Likelihood = Potential | AveragedLikelihood


def _parts(likelihood: Likelihood, at: LinearPredictors) -> list[tuple[float, Potential, LinearPredictors]]:
    """Weight, potential and linear predictors of each part of an average."""
    if not isinstance(at.marginals, MixtureMarginals):
        assert isinstance(likelihood, Potential)  # averages come together
        return [(1.0, likelihood, at)]
    each = at.marginals.parts
    sites = likelihood.parts if isinstance(likelihood, AveragedLikelihood) else [likelihood] * len(each)
    latents = [LinearPredictors(p.mean + at.offset, np.maximum(p.variance, 0.0), at.offset, p) for p in each]
    return list(zip(at.marginals.weights.tolist(), sites, latents, strict=True))


def log_density(likelihood: Likelihood, at: LinearPredictors) -> Array:
    """log ∫ φ_n(x) q_n(x) dx for the likelihood's own observations, one per row, averaged over hyperparameters."""
    logs = [np.log(weight) + _log_density(potential, part) for weight, potential, part in _parts(likelihood, at)]
    return logs[0] if len(logs) == 1 else np.asarray(logsumexp(logs, axis=0))


def _log_density(potential: Potential, at: LinearPredictors) -> Array:
    if not hasattr(at.marginals, "expectation"):
        return np.asarray(potential.tilted_moments(at.mean, at.variance).log_z)
    regions = tuple((centre - at.offset, width) for centre, width in potential.regions())
    density = at.marginals.expectation(
        lambda x: np.exp(potential.log_density(x + at.offset)), regions, potential.smooth
    )
    return np.log(np.maximum(density, np.finfo(float).tiny))


def predictive(likelihood: Likelihood, at: LinearPredictors) -> Predictive:
    """The distribution of new observations; of a density that is not Gaussian, the first two moments are used."""
    weights, potentials, latents = zip(*_parts(likelihood, at), strict=True)
    pairs = zip(potentials, latents, strict=True)
    try:
        each = [potential.predictive(part.mean, part.variance) for potential, part in pairs]
    except UnboundedExpectation as error:
        raise ValueError(f"X, with its offset, lies too far from the rows of the fit: {error}") from error
    return each[0] if len(each) == 1 else AveragedPredictive(np.array(weights), each)


def predictive_quantiles(likelihood: Likelihood, at: LinearPredictors, q: Array) -> Array:
    """Quantiles of new observations, shape (n, len(q))."""
    parts = _parts(likelihood, at)
    if all(type(potential) is Gaussian for _, potential, _ in parts):
        normal = tuple(NormalMarginals(p.mean, p.variance + potential.scale**2) for _, potential, p in parts)  # type: ignore[attr-defined]
        together = normal[0] if len(parts) == 1 else MixtureMarginals(np.array([w for w, _, _ in parts]), normal)
        return np.asarray(together.quantile(q[:, None])).T
    return np.asarray(predictive(likelihood, at).quantile(np.broadcast_to(q[:, None], (len(q), len(at.mean))))).T


def predictive_interval(likelihood: Likelihood, at: LinearPredictors, coverage: float) -> Array:
    """Ends of intervals of new observations, shape (n, 2)."""
    described, ends = predictive(likelihood, at), central_levels(coverage)
    if described.whole or np.isfinite(described.least):
        return described.interval(coverage).T
    return predictive_quantiles(likelihood, at, ends)


def predictive_covariance(likelihood: Likelihood, posterior: Posterior, rows: Any, at: LinearPredictors) -> Array:
    """Covariance matrix of new observations at the rows, noise on the diagonal."""
    parts, whole = _parts(likelihood, at), predictive(likelihood, at)
    densities = [posterior.density] if len(parts) == 1 else cast(Mixture, posterior.density).components
    total = np.zeros((len(at.mean), len(at.mean)))
    for (weight, potential, part), density in zip(parts, densities, strict=True):
        s, described = latent_covariance(density, rows), predictive(potential, part)
        if not isinstance(described, LocationPredictive):
            _refuse_other_means(potential)
            # cov(y_i, y_j) = ⟨e^{x_i}⟩⟨e^{x_j}⟩(e^{S_ij} − 1)
            s = np.outer(described.mean, described.mean) * np.expm1(s)
        apart = described.mean - whole.mean
        total += weight * (s + np.outer(apart, apart))
    total[np.diag_indices(len(total))] = whole.variance
    return total


def draw_observations(likelihood: Likelihood, x: Array, label: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """New observations at linear predictors x (draws, rows), each draw with the hyperparameters of its label."""
    if isinstance(likelihood, Potential):
        return np.asarray(likelihood.sample(x, rng))
    drawn = np.empty_like(x)
    for k in np.unique(label):
        drawn[label == k] = likelihood.parts[k].sample(x[label == k], rng)
    return drawn


def draw_weights(posterior: Posterior, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """Draws of w, one per row, and the component of a mixture that each came from."""
    if isinstance(posterior.density, Mixture):
        return posterior.density.sample_labelled(n, rng)
    return posterior.sample(n, rng), np.zeros(n, np.int64)


def _refuse_other_means(potential: Potential) -> None:
    """Covariances of observations are known where their mean is a multiple of e^x."""
    low, high = potential.predictive(np.array([0.0, 1.0]), np.zeros(2)).mean
    if not np.isclose(high, np.e * low, rtol=1e-8):
        raise ValueError(
            f"return_cov has no closed form for {type(potential).__name__} observations; take the covariance of "
            "draws of sample_y, or ask for return_std"
        )


def latent_covariance(posterior: Any, rows: Any) -> Array:
    """H S Hᵀ for the covariance S of a posterior or density."""
    half = rows @ posterior.covariance()
    return np.asarray(rows @ half.T)


def check_levels(name: str, values: ArrayLike) -> Array:
    """Probabilities strictly between 0 and 1, at least one, as a vector."""
    try:
        q = np.atleast_1d(np.asarray(values, float))
    except (TypeError, ValueError, OverflowError):
        q = np.zeros(1)
    if q.ndim != 1 or not q.size or not np.all((q > 0.0) & (q < 1.0)):
        raise ValueError(f"{name} must hold probabilities strictly between 0 and 1, got {values!r:.80}")
    return q


def central_levels(coverage: float) -> Array:
    """The two quantiles of a central interval."""
    if np.size(coverage) != 1:
        raise ValueError(f"coverage must be one probability, got {coverage!r:.80}")
    (share,) = check_levels("coverage", coverage)
    return np.array([0.5 - 0.5 * share, 0.5 + 0.5 * share])
