"""Floor 1: priors of hyperparameters, such as scales, noise, shapes and lengths of kernels.

Each is a density of one number, normalised unless it says otherwise, and answers for its log density with the
derivative, the same for the logarithm of the number, quantiles and draws.
"""

from latlin.priors.base import (
    Beta,
    Correlation,
    Exponential,
    Flat,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    InverseGamma,
    LogNormal,
    PenalisedComplexity,
    Prior,
    Uniform,
)

__all__ = [
    "Beta",
    "Correlation",
    "Exponential",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "HalfStudentT",
    "InverseGamma",
    "LogNormal",
    "PenalisedComplexity",
    "Prior",
    "Uniform",
]
