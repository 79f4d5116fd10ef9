"""Floor 1: priors of hyperparameters, such as scales, noise, shapes and lengths of kernels.

Each is a density of one number, normalised unless it says otherwise, and answers for its log density with the
derivative, the same for the logarithm of the number, quantiles and draws.
"""

from latlin.priors.base import Prior
from latlin.priors.beta import Beta
from latlin.priors.correlation import Correlation
from latlin.priors.exponential import Exponential, PenalisedComplexity
from latlin.priors.flat import Flat
from latlin.priors.gamma import Gamma, InverseGamma
from latlin.priors.half import HalfCauchy, HalfNormal, HalfStudentT
from latlin.priors.log_normal import LogNormal
from latlin.priors.uniform import Uniform

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
