"""Hyperparameters of a user's own model: `maximise_evidence` and `integrate_evidence`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from latlin.hyper.learn import Learnt, averaged_posterior, integrate, maximise
from latlin.hyper.marginals import HyperparameterTable
from latlin.hyper.space import Evaluate, Evaluation, Hyperparameter, Space
from latlin.inference.affine.engine import AffineKL
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import PrecisionSlopes, evidence_gradient
from latlin.inference.evidence.terms import EvidenceGradient, GaussianGradient
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import Auto, choose, infer, resolve
from latlin.inference.laplace import MAP
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_mapping, check_number
from latlin.priors.base import Flat, Prior

# --- The gradient of the evidence in the parameters of a user's own model.
#
# A function `build` makes a model from named numbers. The engine's evidence has derivatives in every mean, covariance
# and potential parameter of the model (`latlin.inference.evidence`); how those move with the numbers is seen by
# building the model a little to either side, which costs no fit:
#
#     d log Z / dθ = Σ_factors ⟨∂ log Z / ∂(mean, cov, parameters), ∂(mean, cov, parameters) / ∂θ⟩


#: relative step of the differences of `build`
STEP = 1e-5
Build = Callable[..., LatentLinearModel]


class _Unknown(Exception):
    """A factor moves in a way that the evidence has no derivative for."""


def evidence_slopes(build: Build, values: Mapping[str, float], posterior: Posterior) -> dict[str, float] | None:
    """d log Z / d value by name, or None where the chain rule does not reach."""
    try:
        found = evidence_gradient(posterior)
        return {name: _slope(build, values, name, found, posterior) for name in values}
    except (_Unknown, ValueError):
        return None


def _slope(
    build: Build, values: Mapping[str, float], name: str, found: EvidenceGradient, posterior: Posterior
) -> float:
    step = STEP * max(abs(values[name]), STEP)
    ahead, behind = (build(**{**values, name: values[name] + sign * step}) for sign in (1.0, -1.0))
    total = 0.0
    for k, (slope, *ends) in enumerate(zip(found.gaussians, ahead.gaussians, behind.gaussians, strict=True)):
        total += _gaussian(slope, *ends) if ends[0].precision is None else _precision(posterior, k, *ends)
    for slopes, *blocks in zip(found.sites, ahead.sites, behind.sites, strict=True):
        total += _site(slopes, *blocks)
    return total / (2.0 * step)


def _gaussian(slope: GaussianGradient, after: GaussianFactor, before: GaussianFactor) -> float:
    _refuse_movement(after, before, {"mean", "_cov", "factor", "log_det"})
    moved = np.asarray(after.mean) - np.asarray(before.mean)
    total = float(np.sum(slope.d_mean * moved))
    spread = np.asarray(after.cov) - np.asarray(before.cov)
    return total + float(np.sum(slope.d_cov * spread))


def _precision(posterior: Posterior, k: int, after: GaussianFactor, before: GaussianFactor) -> float:
    _refuse_movement(after, before, {"precision", "log_det"})
    change = after.precision - before.precision  # type: ignore[operator]
    if not change.count_nonzero():
        return 0.0
    known = after.log_det is not None and before.log_det is not None
    return PrecisionSlopes(posterior)(change, k, after.log_det - before.log_det if known else None)  # type: ignore[operator]


def _site(slopes: Mapping[str, Array], after: SiteFactor, before: SiteFactor) -> float:
    _refuse_movement(after, before, {"potential"})
    if type(after.potential) is not type(before.potential):
        raise _Unknown
    total = 0.0
    for name in after.potential.parameters:
        moved = np.asarray(getattr(after.potential, name), float) - np.asarray(getattr(before.potential, name), float)
        if not np.any(moved):
            continue
        if name not in slopes:
            raise _Unknown
        total += float(np.sum(slopes[name] * moved))
    return total


def _refuse_movement(after: object, before: object, allowed: set[str]) -> None:
    """Only what the evidence has derivatives for may move."""
    for name, value in vars(after).items():
        if name not in allowed and not _same(value, vars(before)[name]):
            raise _Unknown


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if sparse.issparse(a) and sparse.issparse(b):
        return a.shape == b.shape and (a != b).nnz == 0
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(type(a) is type(b) and a == b)


@dataclass(frozen=True)
class LearntModel:
    """A model with its hyperparameters learnt.

    Attributes
    ----------
    parameters : dict
        The penalised optimum, or posterior means when integrated.
    posterior : Posterior
        At the optimum, or a mixture over hyperparameters when integrated.
    hessian : ndarray of shape (m, m) or None
        Of log evidence + log prior in the parameters, in their order, at the optimum; None when integrated.
    hyperparameters : HyperparameterTable
        Name, mean, sd, quantiles, at_bound and prior of each.
    log_evidence : float
        At the optimum; log ∫ exp(log evidence) p(θ) dθ when integrated.
    message : str
    """

    parameters: dict[str, float]
    posterior: Posterior
    hessian: Array | None = field(repr=False)
    hyperparameters: HyperparameterTable
    log_evidence: float
    message: str


def maximise_evidence(
    build: Build,
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]] | None = None,
    priors: Mapping[str, Prior] | None = None,
    *,
    engine: str | Engine = "auto",
    verbose: bool = False,
) -> LearntModel:
    """The parameters of largest log evidence (plus log prior) of a model that a function builds.

    Parameters
    ----------
    build : callable
        `build(**parameters)` → LatentLinearModel, smooth in the parameters, with the same factors for all of them.
    start : dict
        Name → number to start from. One above zero stays above zero, unless bounds or a prior say otherwise.
    bounds : dict, optional
        Name → (low, high), the ends of the search.
    priors : dict, optional
        Name → one of `latlin.priors`; those without one are flat.
    engine : str or engine object
        Any engine with an evidence. Gradients are analytic: those of the evidence in the factors, times how `build`
        moves the factors; where a factor moves otherwise (its H, say), differences of the evidence serve.
    verbose : bool
        Show a bar, one step per fit.

    Returns
    -------
    LearntModel

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, maximise_evidence, potentials
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 2))
    >>> y = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(60)
    >>> def build(scale, noise):
    ...     return LatentLinearModel([GaussianFactor(cov=scale**2), SiteFactor(X, potentials.Gaussian(y, noise))])
    >>> found = maximise_evidence(build, {"scale": 1.0, "noise": 1.0})
    >>> round(found.parameters["noise"], 1)
    0.3
    """
    known = _space(start, bounds, priors)
    learnt = maximise(known, _evaluation(build, start, engine), gradient=1e-5, gain=1e-14, verbose=verbose)
    assert learnt.hessian is not None
    # at an optimum the Hessian in the numbers is that in the coordinates, divided by the slopes
    slopes = np.array([m.slope(float(t)) for m, t in zip(known.members, learnt.optimum.u, strict=True)])
    return _result(learnt, learnt.hessian / np.outer(slopes, slopes))


def integrate_evidence(
    build: Build,
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]] | None = None,
    priors: Mapping[str, Prior] | None = None,
    *,
    engine: str | Engine = "auto",
    method: str = "auto",
    random_state: int = 0,
    verbose: bool = False,
) -> LearntModel:
    """Average the posterior of a model that a function builds over the posterior of its parameters.

    Parameters are those of `maximise_evidence`; every parameter should have a prior that is a density. The posterior is
    a mixture of the fits at some tens of points, its evidence the integral of exp(log evidence) against the priors.

    Parameters
    ----------
    build, start, bounds, priors, engine, verbose
        See `maximise_evidence`.
    method : {"auto", "lattice", "composite", "importance"}
        "auto" is a lattice for up to 3 parameters, a central composite design for up to 8, importance sampling beyond.
    random_state : int
        Seed of the quasi-random points of importance sampling.

    Returns
    -------
    LearntModel

    Examples
    --------
    Eight schools (Rubin, 1981): the spread of the effects is all but nothing at its optimum, but not on average.

    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, integrate_evidence, potentials, priors
    >>> y, sd = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    >>> H = np.column_stack([np.ones(8), np.eye(8)])  # the mean of all, and one deviation per school
    >>> def build(spread):
    ...     prior = GaussianFactor(0.0, np.array([5.0**2, *np.full(8, spread**2)]))
    ...     return LatentLinearModel([prior, SiteFactor(H, potentials.Gaussian(y, sd))])
    >>> found = integrate_evidence(build, {"spread": 5.0}, priors={"spread": priors.HalfCauchy(5.0)})
    >>> round(found.parameters["spread"], 1)
    3.6
    """
    known = _space(start, bounds, priors)
    learnt = integrate(
        known, _evaluation(build, start, engine), method=method, random_state=random_state, verbose=verbose
    )
    return _result(learnt, None)


def _result(learnt: Learnt, hessian: Array | None) -> LearntModel:
    posterior = averaged_posterior(learnt)
    return LearntModel(learnt.values, posterior, hessian, learnt.table, learnt.log_evidence, learnt.message)


def _evaluation(build: Build, start: Mapping[str, float], engine: str | Engine) -> Evaluate:
    chosen = _chosen(build, start, engine)

    def evaluate(values: dict[str, float], before: Posterior | None, slopes: bool) -> Evaluation:
        posterior = infer(build(**values), chosen, start=before)
        gradient = evidence_slopes(build, values, posterior) if slopes else None
        return Evaluation(posterior.log_evidence, gradient, posterior)

    return evaluate


def _chosen(build: Build, start: Mapping[str, float], engine: str | Engine) -> Engine:
    """One engine for all values, so that their evidences are of one kind."""
    if not callable(build):
        raise ValueError(f"build must be a function of the parameters, got {build!r:.80}")
    model = _built(build, start)
    if not isinstance(model, LatentLinearModel):
        raise ValueError(f"build must return a LatentLinearModel, got {type(model).__name__}")
    requested = resolve(engine)
    if isinstance(requested, MAP):
        raise ValueError("engine 'map' has no evidence, so nothing can be learnt by it; use 'laplace', 'ep' or 'gkl'")
    chosen = choose(model)[0] if isinstance(requested, Auto) else requested
    # a Gaussian serves to learn hyperparameters, and takes a fraction of the time
    return GaussianKL() if isinstance(requested, Auto) and isinstance(chosen, AffineKL) else chosen


def _built(build: Build, start: Mapping[str, float]) -> object:
    """The first model; its numbers may be too large for it, and its names others."""
    try:
        inspect.signature(build).bind(**start)
    except TypeError as error:
        raise ValueError(f"start must name the parameters of build, got {', '.join(start)}: {error}") from error
    except ValueError:  # a function without a signature
        pass
    try:
        return build(**start)
    except OverflowError as error:
        raise ValueError(f"start must hold numbers that build can take, got {dict(start)!r:.80}: {error}") from error


def _space(
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]] | None,
    priors: Mapping[str, Prior] | None,
) -> Space:
    if not isinstance(start, Mapping) or not start:
        raise ValueError(f"start must give every parameter of build a number by name, got {start!r:.80}")
    bounds, priors = check_mapping("bounds", bounds), check_mapping("priors", priors)
    for name, given in (("bounds", bounds), ("priors", priors)):
        if unknown := sorted(set(given) - set(start)):
            raise ValueError(f"{name} names {', '.join(unknown)}, which start does not: it has {', '.join(start)}")
    for name, value in start.items():
        check_number(f"start[{name!r}]", value)
    return Space([_member(name, value, bounds.get(name), priors.get(name)) for name, value in start.items()])


def _member(name: str, value: float, ends: tuple[float, float] | None, prior: Prior | None) -> Hyperparameter:
    positive = value > 0.0 and (ends is None or ends[0] >= 0.0)
    support = (0.0, np.inf) if positive else (-np.inf, np.inf)
    return Hyperparameter(name, value, Flat() if prior is None else prior, support, ends)
