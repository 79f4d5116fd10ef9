"""Floor 1: scalar functions of projections, one family per file.

Each potential is a block of sites φ_n(x_n) and answers for its log density, the expected log under a Gaussian,
the moments of its product with a Gaussian, its derivatives, a quadratic lower bound, and the distribution of
a new observation.
"""

from latlin.potentials.base import (
    Derivatives,
    ExpectedLog,
    Potential,
    QuadraticBound,
    TiltedMoments,
)
from latlin.potentials.beta import Beta
from latlin.potentials.beta_binomial import BetaBinomial
from latlin.potentials.binomial import Binomial
from latlin.potentials.custom import Custom
from latlin.potentials.gamma import Gamma
from latlin.potentials.gaussian import Gaussian, LogNormal
from latlin.potentials.gaussian_mixture import GaussianMixture, SpikeAndSlab
from latlin.potentials.generalised_normal import GeneralisedNormal
from latlin.potentials.generalised_poisson import GeneralisedPoisson
from latlin.potentials.horseshoe import Horseshoe
from latlin.potentials.huber import Huber
from latlin.potentials.inverse_gaussian import InverseGaussian
from latlin.potentials.laplace import AsymmetricLaplace, Laplace
from latlin.potentials.logistic import Logistic
from latlin.potentials.logit import Logit
from latlin.potentials.negative_binomial import NegativeBinomial
from latlin.potentials.ordinal import Ordinal
from latlin.potentials.poisson import Poisson
from latlin.potentials.predictive import Predictive
from latlin.potentials.probit import Probit
from latlin.potentials.step import Step
from latlin.potentials.student_t import Cauchy, StudentT
from latlin.potentials.survival import Exponential, LogLogistic, Weibull
from latlin.potentials.truncated import Interval, Truncated
from latlin.potentials.tweedie import Tweedie
from latlin.potentials.zero_counts import Hurdle, ZeroInflated

__all__ = [
    "AsymmetricLaplace",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "Cauchy",
    "Custom",
    "Derivatives",
    "ExpectedLog",
    "Exponential",
    "Gamma",
    "Gaussian",
    "GaussianMixture",
    "GeneralisedNormal",
    "GeneralisedPoisson",
    "Horseshoe",
    "Huber",
    "Hurdle",
    "Interval",
    "InverseGaussian",
    "Laplace",
    "LogLogistic",
    "LogNormal",
    "Logistic",
    "Logit",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Potential",
    "Predictive",
    "Probit",
    "QuadraticBound",
    "SpikeAndSlab",
    "Step",
    "StudentT",
    "TiltedMoments",
    "Truncated",
    "Tweedie",
    "Weibull",
    "ZeroInflated",
]
