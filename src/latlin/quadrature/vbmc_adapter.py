"""Variational Bayesian Monte Carlo by PyVBMC, as a posterior of this library.

A Gaussian process on the log joint density, Bayesian quadrature for its expectation, and a mixture of Gaussians
as approximate posterior (Acerbi 2018, 2020; Gutteridge (2021), §7.3.1). PyVBMC does the work; here its
answer gets the names of every other posterior.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latlin.diagnostics.weights import WeightSummary, summarise_weights
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator
from latlin.quadrature.measures import GaussianMixture, check_points
from latlin.quadrature.result import Evaluations, IntegrandError

# --- Mixtures of Gaussians as posterior densities, in their own coordinates or through a change of variables.

DRAWS = 100_000  # for moments that have no closed form


class VbmcMixture(NamedTuple):
    """A mixture of Gaussians with the questions a posterior answers."""

    components: GaussianMixture

    @property
    def mean(self) -> Array:
        """Σ w m."""
        return self.components.weights @ self.components.means

    def covariance(self) -> Array:
        """Σ w (S + (m − m̄)(m − m̄)ᵀ)."""
        away = self.components.means - self.mean
        within = np.einsum("a,aij->ij", self.components.weights, self.components.covs)
        return within + (away.T * self.components.weights) @ away

    @property
    def variance(self) -> Array:
        """Marginal variances."""
        return np.diagonal(self.covariance()).copy()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        return self.components.sample(count, random_state)

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density at the rows of x."""
        return self.components.logpdf(x)

    def affine(self, factor: Array, offset: Array) -> VbmcMixture:
        """The density of factor·x + offset."""
        means = self.components.means @ factor.T + offset
        covs = factor @ self.components.covs @ factor.T
        covs = 0.5 * (covs + np.swapaxes(covs, 1, 2))
        return VbmcMixture(GaussianMixture(self.components.weights, means, covs))

    def project(self, H: ArrayLike) -> VbmcMixture:
        """The density of Hx."""
        rows = check_points(H, self.components.dim, "H")
        return self.affine(rows, np.zeros(len(rows)))


class Mapped(NamedTuple):
    """The density of x whose image u = inward(x) is a mixture of Gaussians; moments are those of draws."""

    inner: VbmcMixture
    inward: Callable[[Array], Array]
    outward: Callable[[Array], Array]
    log_volume: Callable[[Array], Array]  # log |∂x/∂u| at u

    @property
    def mean(self) -> Array:
        """Mean of 100,000 draws."""
        return self.sample(DRAWS, 0).mean(axis=0)

    def covariance(self) -> Array:
        """Covariance of 100,000 draws."""
        return np.atleast_2d(np.cov(self.sample(DRAWS, 0).T))

    @property
    def variance(self) -> Array:
        """Marginal variances of 100,000 draws."""
        return np.diagonal(self.covariance()).copy()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        return self.outward(self.inner.sample(count, random_state))

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density at the rows of x."""
        u = self.inward(check_points(x, self.inner.components.dim, "x"))
        return self.inner.logpdf(u) - np.ravel(self.log_volume(u))

    def project(self, H: ArrayLike) -> VbmcMixture:
        """Raise an error: this is not a mixture any more."""
        raise ValueError("project(H) needs a posterior without bounds: use draws, post.sample(n) @ H.T")


Bounds = tuple[ArrayLike, ArrayLike]
LogJoint = Callable[[Array], ArrayLike]


@dataclass(frozen=True)
class VBMCPosterior:
    """A mixture of Gaussians for a posterior, and the log evidence with its standard deviation.

    Attributes
    ----------
    density : Mixture or Mapped
        Over x; `Mapped` (a mixture in unbounded coordinates) where x has bounds.
    log_evidence, log_evidence_sd : float
        The estimated bound, and what the process does not know of it. It is the estimate of a lower bound and no
        bound itself: hence `evidence_kind` "approximation".
    evaluations : Evaluations
        Every x at which the log joint was asked for, and its value there.
    trace : ndarray
        The estimated bound after each of `n_iter` iterations.
    log_joint : callable
        What was asked; `diagnose` asks it again.
    """

    density: VbmcMixture | Mapped = field(repr=False)
    log_evidence: float
    log_evidence_sd: float
    evidence_kind: str
    engine: str
    converged: bool
    n_iter: int
    trace: Array = field(repr=False)
    elapsed: float
    message: str
    evaluations: Evaluations = field(repr=False)
    log_joint: LogJoint = field(repr=False)

    @property
    def mean(self) -> Array:
        """Posterior mean."""
        return self.density.mean

    @property
    def variance(self) -> Array:
        """Marginal variances."""
        return np.diagonal(self.density.covariance()).copy()

    def covariance(self) -> Array:
        """The covariance matrix."""
        return self.density.covariance()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        return self.density.sample(count, random_state)

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density at one x or each row of a matrix."""
        points, d = np.asarray(x, dtype=float), self.evaluations.points.shape[1]
        if points.ndim not in (1, 2) or points.shape[-1] != d:
            raise ValueError(f"x must be one vector or rows of length {d}, got shape {points.shape}")
        return self.density.logpdf(points.reshape(-1, d)).reshape(points.shape[:-1])

    def project(self, H: ArrayLike) -> VbmcMixture:
        """The mixture of Hx, for x without bounds."""
        return self.density.project(H)

    def diagnose(self, n: int = 200, random_state: RandomState = None) -> WeightSummary:
        """How far to trust this posterior, by importance sampling: n more evaluations of the log joint at its draws.

        A `k_hat` above 0.7 says that the mixture misses a part of the posterior; `log_evidence` is then not to be
        trusted either. `lower_bound` is what the draws make of the log evidence. There is no prior to draw from, so
        that a mode which no draw comes near is not found.
        """
        draws = self.sample(check_whole("n", n, least=20), random_state)
        return summarise_weights(np.asarray(self.log_joint(draws), dtype=float).ravel() - self.logpdf(draws))


def vbmc(
    log_joint: LogJoint,
    x0: ArrayLike,
    bounds: Bounds | None = None,
    plausible: Bounds | None = None,
    *,
    max_evaluations: int | None = None,
    random_state: RandomState = None,
    options: dict[str, Any] | None = None,
) -> VBMCPosterior:
    """Posterior and evidence of an expensive log joint density, by PyVBMC.

    Parameters
    ----------
    log_joint : callable
        Points of shape (n, d) → log p(data, x) of shape (n,); asked for one point at a time.
    x0 : array of shape (d,)
        Where to start.
    bounds : (lower, upper), optional
        Of x; infinite by default.
    plausible : (lower, upper), optional
        A box that holds most of the posterior; x0 ± 1 by default. PyVBMC depends on it.
    max_evaluations : int, optional
        Evaluations of the log joint at most; 50(d + 2) by default.
    random_state : int, Generator or None
    options : dict, optional
        More options of PyVBMC.

    Raises
    ------
    ImportError
        Without PyVBMC: install latlin[vbmc].
    IntegrandError
        When the log joint raises or is no number; the evaluations so far are in it.
    """
    started = time.perf_counter()
    start = np.atleast_1d(np.asarray(x0, dtype=float))
    lower, upper = _box(bounds, (-np.inf, np.inf), len(start), "bounds")
    boxes = (lower, upper, *_box(plausible, (start - 1.0, start + 1.0), len(start), "plausible"))
    recorder = _Recorder(log_joint, len(start))
    settings = {"display": "off", **({"max_fun_evals": max_evaluations} if max_evaluations else {}), **(options or {})}
    variational, results, trace = _run(recorder, start, boxes, settings, random_state)
    return VBMCPosterior(
        density=_density(variational, bool(np.all(np.isinf(lower)) and np.all(np.isinf(upper)))),
        log_evidence=float(results["elbo"]),
        log_evidence_sd=float(results["elbo_sd"]),
        evidence_kind="approximation",
        engine="vbmc",
        converged=bool(results["success_flag"]),
        n_iter=int(results["iterations"]),
        trace=trace,
        elapsed=time.perf_counter() - started,
        message=str(results["message"]),
        evaluations=recorder.evaluations,
        log_joint=log_joint,
    )


def _run(
    recorder: _Recorder, start: Array, boxes: tuple[Array, ...], settings: dict[str, Any], random_state: RandomState
) -> tuple[Any, dict[str, Any], Array]:
    """PyVBMC's mixture, its results, and the bound after each iteration."""
    try:
        from pyvbmc import VBMC
    except ImportError as error:
        raise ImportError("vbmc() needs PyVBMC: install latlin[vbmc]") from error
    seed = int(generator(random_state).integers(2**31))
    engine = VBMC(recorder, start[None], *(b[None] for b in boxes), options=settings, seed=seed)
    variational, results = engine.optimize()
    if not results["success_flag"]:
        text = f"vbmc did not converge: {results['message']}; raise max_evaluations"
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
    return variational, results, np.array(engine.iteration_history["elbo"], dtype=float)


class _Recorder:
    """The log joint for one point, which remembers."""

    def __init__(self, log_joint: LogJoint, dim: int) -> None:
        self._log_joint = log_joint
        self._points: list[Array] = []
        self._values: list[float] = []
        self._dim = dim

    @property
    def evaluations(self) -> Evaluations:
        return Evaluations(np.array(self._points).reshape(-1, self._dim), np.array(self._values))

    def __call__(self, x: Array) -> float:
        point = np.asarray(x, dtype=float).reshape(1, -1)
        try:
            value = np.asarray(self._log_joint(point), dtype=float)
        except Exception as error:
            text = f"the log joint raised {type(error).__name__}: {error}"
            raise IntegrandError(text, self.evaluations) from error
        if value.size != 1 or np.isnan(value).any() or np.any(value == np.inf):
            raise IntegrandError(f"the log joint is {value} at {point[0].tolist()}", self.evaluations)
        self._points.append(point[0].copy())
        self._values.append(float(value.reshape(())))
        return self._values[-1]


def _box(bounds: Bounds | None, default: Bounds, d: int, name: str) -> tuple[Array, Array]:
    lower, upper = (np.broadcast_to(np.asarray(b, dtype=float), (d,)) for b in (bounds or default))
    if not np.all(lower < upper):
        raise ValueError(f"{name} must be (lower, upper) with lower below upper, got {bounds!r}")
    return lower, upper


def _density(variational: Any, unbounded: bool) -> VbmcMixture | Mapped:
    weights, means = variational.w.ravel(), variational.mu.T
    scales = (variational.lambd * variational.sigma).T  # (K, d): σ_k λ
    transform = variational.parameter_transformer
    inner = VbmcMixture(GaussianMixture(weights, means, scales**2))
    if not unbounded:
        return Mapped(inner, transform, transform.inverse, transform.log_abs_det_jacobian)
    origin = transform.inverse(np.zeros((1, means.shape[1])))[0]
    columns = transform.inverse(np.eye(means.shape[1])) - origin
    return inner.affine(columns.T, origin)
