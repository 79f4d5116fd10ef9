"""Fits of complete data from their covariance: what the estimator's options mean for Newton steps and for EM."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.factor.analysis.direct import direct_fit, principal_fit
from latlin.factor.analysis.em import em_fit
from latlin.factor.analysis.moments import Moments
from latlin.factor.fit import Fit
from latlin.numerics.ascent import Checkpoint, Rules
from latlin.numerics.linalg import Array


def rules_of(options: Any) -> Rules:
    """When a climb stops."""
    remedy = "raise max_iter or tol, or use fewer components"
    return Rules(options.tol, 1e-3 * options.tol, options.max_iter, True, remedy)


def ml_fit(options: Any, s: Moments, mean: Array, checkpoint: Checkpoint | None = None) -> Fit:
    """The maximum by Newton steps, or in closed form when the noise is isotropic."""
    rank = int(options.n_components)
    if options.noise == "isotropic":
        return principal_fit(s, mean, rank)
    return direct_fit(s, mean, rank, options.noise_floor, rules_of(options), options.verbose, checkpoint)


def complete_em_fit(options: Any, s: Moments, mean: Array, checkpoint: Checkpoint | None = None) -> Fit:
    """EM from the principal axes of the correlations."""
    rank, isotropic = int(options.n_components), options.noise == "isotropic"
    sd = np.sqrt(s.variance)
    values, vectors = s.top(1.0 / sd, rank, None)
    rest = max((len(sd) - values.sum()) / (len(sd) - rank), 0.0)
    start = (vectors * np.sqrt(np.maximum(values - rest, 0.05 * values))).T
    noise = np.maximum(1.0 - (start**2).sum(axis=0), 0.1) * s.variance
    noise = np.full_like(noise, noise.mean()) if isotropic else noise
    floor = options.noise_floor * s.variance
    return em_fit(s, mean, start * sd, noise, isotropic, floor, rules_of(options), options.verbose, checkpoint)
