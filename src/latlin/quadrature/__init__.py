"""Floor 3: Bayesian quadrature, what is built on it, and Monte Carlo beside it."""

from latlin.quadrature.bayesian import BayesianQuadrature, integrate
from latlin.quadrature.gradient import GaussianQuadratureGradient, GradientEstimate, score_gradient
from latlin.quadrature.measures import Gaussian, GaussianMixture, Reweighted, Uniform
from latlin.quadrature.monte_carlo import Subsample, importance_sampling, monte_carlo, subsample
from latlin.quadrature.result import Evaluations, Integral, IntegrandError, Trace
from latlin.quadrature.surrogate import Hyperparameters
from latlin.quadrature.vbmc_adapter import VBMCPosterior, vbmc

__all__ = [
    "BayesianQuadrature",
    "Evaluations",
    "Gaussian",
    "GaussianMixture",
    "GaussianQuadratureGradient",
    "GradientEstimate",
    "Hyperparameters",
    "Integral",
    "IntegrandError",
    "Reweighted",
    "Subsample",
    "Trace",
    "Uniform",
    "VBMCPosterior",
    "importance_sampling",
    "integrate",
    "monte_carlo",
    "score_gradient",
    "subsample",
    "vbmc",
]
