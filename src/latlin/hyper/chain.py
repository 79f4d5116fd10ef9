"""The gradient of the evidence in the parameters of a user's own model.

A function `build` makes a model from named numbers. The engine's evidence has derivatives in every mean, covariance and
potential parameter of the model (`latlin.inference.evidence`); how those move with the numbers is seen by building the
model a little to either side, which costs no fit:

    d log Z / dθ = Σ_factors ⟨∂ log Z / ∂(mean, cov, parameters), ∂(mean, cov, parameters) / ∂θ⟩
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from latlin.inference.evidence.gaussian import GaussianGradient
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.evidence.precision import PrecisionSlopes
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array

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


def _slope(build: Build, values: Mapping[str, float], name: str, found: Any, posterior: Posterior) -> float:
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
