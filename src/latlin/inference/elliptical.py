"""Elliptical KL: the Student t closest to the posterior in KL(q‖p), with a lower bound on the log evidence.

Challis (2013), §4.6.3: q(w) = ∫N(w | m, αS)p(α)dα, with α = (df − 2)/χ²_df here, so that S is the covariance and the
density a Student t, whose entropy is closed. A site's energy is one more integral,

    ⟨ψ(hᵀw)⟩ = ∫ p(α) ⟨ψ⟩_{N(hᵀm, α hᵀSh)} dα,

so that for given df it is Gaussian KL of sites averaged over α. The best df is searched.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from latlin.densities.gaussian import Gaussian, MultivariateT, entropy_loss
from latlin.inference.engine import refuse_extra_variance
from latlin.inference.evidence.terms import RefusedEvidence
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ignore_convergence_warnings
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_number, is_name
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials.base import Derivatives, ExpectedLog, Potential

#: where degrees of freedom are searched
DF_RANGE = (3.0, 300.0)
#: degrees of freedom that differ from a Gaussian in no digit
LARGEST_DF = 1e16
#: step of the trapezoid rule in log χ², and the share of ⟨α⟩ that may be left out
STEP, LEFT_OUT = 0.35, 1e-8
#: of the search: relative accuracy of log(df − 2), and steps at most
DF_TOL, DF_STEPS = 0.02, 25
#: places where sites may fall no faster than a parabola
NEAR, FAR = 1e4, 1e8
NO_GRADIENT = "the evidence of an elliptical density has no gradient here; use 'gkl'"


@storable_by_arguments
@dataclass(frozen=True)
class EllipticalKL:
    """The Student t that maximises the lower bound on log Z: a Gaussian with heavier tails.

    Parameters
    ----------
    df : float or "auto"
        Degrees of freedom, at least 3; "auto" searches those with the best bound, and falls back on the Gaussian where
        that is better.
    tol, max_iter : float, int
        Of each fit, as for `GaussianKL`.

    Notes
    -----
    The bound is never below that of `GaussianKL`. Sites that fall faster than a parabola (Poisson, gamma) have no
    finite energy under a Student t and are refused.

    Examples
    --------
    >>> from latlin import LatentLinearModel, GaussianFactor, SiteFactor, engines, infer, potentials
    >>> sites = SiteFactor([[1.0], [1.0]], potentials.Cauchy([0.0, 0.5], 0.3))
    >>> model = LatentLinearModel([GaussianFactor(cov=1e4, dim=1), sites])
    >>> post = infer(model, engines.EllipticalKL())
    >>> post.log_evidence > infer(model, "gkl").log_evidence, 3.0 <= post.density.df < 30.0
    (True, True)
    """

    name: ClassVar[str] = "t-kl"
    df: float | str = "auto"
    tol: float = 1e-6
    max_iter: int = 300

    def __post_init__(self) -> None:
        if not is_name(self.df, "auto"):
            check_number("df", self.df, least=DF_RANGE[0], most=LARGEST_DF)

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        started, held = time.perf_counter(), require_in_memory(model, self.name)
        refuse_extra_variance(held, self.name)
        for potential in held.potentials:
            refuse_steep(potential)
        inner = GaussianKL(tol=self.tol, max_iter=self.max_iter)
        first = inner.run(held, start=_gaussian_start(start), verbose=verbose, checkpoint=checkpoint)
        if self.df == "auto":
            df, best = search_df(held, first, inner)
        else:
            df, best = float(self.df), fit_df(held, first, inner, float(self.df))
        if self.df == "auto" and not best.log_evidence > first.log_evidence:
            note = f"; no Student t has a better bound than the Gaussian (df = {df:.3g}: {best.log_evidence:.6g})"
            best = replace(first, message=first.message + note)
        elapsed = time.perf_counter() - started
        return replace(
            best, model=model, elapsed=elapsed, engine=self.name, sites=None, evidence_term=RefusedEvidence(NO_GRADIENT)
        )


def _gaussian_start(start: Posterior | None) -> Posterior | None:
    """The same posterior with the Gaussian of its mean and covariance."""
    if start is None or not isinstance(start.density, MultivariateT):
        return start
    return replace(start, density=start.density.gaussian, sites=None)


def search_df(model: LatentLinearModel, first: Posterior, inner: GaussianKL) -> tuple[float, Posterior]:
    """The degrees of freedom with the best bound, by Brent's method in log(df − 2), each fit from the best so far."""
    fits: dict[float, Posterior] = {}

    def loss(t: float) -> float:
        df = 2.0 + float(np.exp(t))
        start = max(fits.values(), key=lambda post: post.log_evidence, default=first)
        with ignore_convergence_warnings():
            fits[df] = fit_df(model, start, inner, df)
        return -fits[df].log_evidence

    ends = tuple(float(np.log(df - 2.0)) for df in DF_RANGE)
    minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": DF_TOL, "maxiter": DF_STEPS})
    df = max(fits, key=lambda each: fits[each].log_evidence)
    return df, fits[df]


def fit_df(model: LatentLinearModel, start: Posterior, inner: GaussianKL, df: float) -> Posterior:
    """The best Student t with so many degrees of freedom."""
    scales, weights = scale_nodes(df)
    factors = [f.with_potential(average_over_scales(f.potential, scales, weights)) for f in model.sites]
    widened = model.among([*model.gaussians, *factors])
    found = inner.run(widened, start=_gaussian_start(start))
    assert isinstance(found.density, Gaussian)
    loss = entropy_loss(found.density.degrees, df)
    return replace(
        found,
        density=MultivariateT(found.density, df),
        log_evidence=found.log_evidence - loss,
        trace=found.trace - loss,
        evidence_kind="lower bound",
        message=f"Student t with df = {df:.3g}; {found.message}",
    )


# --- The scale


def scale_nodes(df: float) -> tuple[Array, Array]:
    """Nodes α and weights of α = (df − 2)/χ²_df: the trapezoid rule in log χ², with Σw = 1 and Σwα = 1.

    The integrand falls like e^{df·t/2} to the left, times α at most, and doubly exponentially to the right.
    """
    low = np.log(df) + min(np.log(LEFT_OUT) / (0.5 * df - 1.0), -10.0 * np.sqrt(2.0 / df))
    t = np.arange(low, np.log(df + 12.0 * np.sqrt(df) + 60.0), min(STEP, STEP * np.sqrt(8.0 / df)))
    log_weight = 0.5 * df * t - 0.5 * np.exp(t) - 0.5 * df * np.log(2.0) - gammaln(0.5 * df)
    weight, scale = np.exp(log_weight - log_weight.max()), (df - 2.0) * np.exp(-t)
    keep = weight * np.maximum(scale, 1.0) > 1e-10 * (weight * scale).max()
    weight, scale = weight[keep] / weight[keep].sum(), scale[keep]
    return scale / (weight @ scale), weight


def average_over_scales(potential: Potential, scales: Array, weights: Array) -> Potential:
    """The sites averaged over α; Gaussian ones need nothing but the covariance, which is S whatever α."""
    return potential if potential.gaussian else ScaleAveraged(potential, scales, weights)


class ScaleAveraged(Potential):
    """Sites whose energies under N(m, v) are averages of the base's under N(m, αv).

    Parameters
    ----------
    base : Potential
    scales, weights : array_like
        Nodes and weights of α.
    """

    parameters = ("base", "scales", "weights")

    base: Potential
    scales: Array
    weights: Array

    def __init__(self, base: Potential, scales: ArrayLike, weights: ArrayLike) -> None:
        self._store(base=base, scales=np.asarray(scales, float), weights=np.asarray(weights, float))
        self._store(log_concave=base.log_concave, smooth=base.smooth)

    @property
    def size(self) -> int | None:
        return self.base.size

    def select(self, index: Any) -> ScaleAveraged:
        return ScaleAveraged(self.base.select(index), self.scales, self.weights)

    def log_density(self, x: ArrayLike) -> Array:
        return self.base.log_density(x)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self.base.derivatives(x)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return self.base.regions()

    def expected_log(self, mean: ArrayLike, var: ArrayLike) -> ExpectedLog:
        mean, var = np.broadcast_arrays(np.asarray(mean, float), np.asarray(var, float))
        alpha = self.scales.reshape(-1, *[1] * mean.ndim)
        found = self.base.expected_log(np.broadcast_to(mean, alpha.shape[:1] + mean.shape), alpha * var)
        # ∂/∂v = Σ w α ∂⟨ψ⟩/∂(αv)
        value, d_mean = (np.tensordot(self.weights, part, 1) for part in (found.value, found.d_mean))
        return ExpectedLog(value, d_mean, np.tensordot(self.weights * self.scales, found.d_var, 1))


def refuse_steep(potential: Potential) -> None:
    """Raise an error for sites that fall faster than a parabola, whose energy under a Student t may be infinite."""
    with np.errstate(all="ignore"):
        # as far as that from where the sites bend, which may be far from zero
        regions = [np.broadcast_arrays(*region, np.zeros(potential.size or 1)) for region in potential.regions()]
        low = np.min([centre for centre, _, _ in regions], axis=0)
        high = np.max([centre for centre, _, _ in regions], axis=0)
        width = np.max([high - low, *(width for _, width, _ in regions)], axis=0)
        drops = [
            np.abs(np.asarray(potential.log_density(end + sign * far * width), float))
            for sign, end in ((-1.0, low), (1.0, high))
            for far in (NEAR, FAR)
        ]
    for near, far in ((drops[0], drops[1]), (drops[2], drops[3])):
        if not np.all(np.isfinite(far) & (far <= 1.1 * (FAR / NEAR) ** 2 * np.maximum(near, 1.0))):
            name = type(potential).__name__
            raise ValueError(
                f"{name} sites fall faster than a parabola, so their expectation under a Student t is infinite: use "
                "engine 'gkl' or 'ai-kl'"
            )
