"""Floor 3: Bayesian quadrature, Monte Carlo beside it."""

from latlin.quadrature.bayesian import BayesianQuadrature, integrate
from latlin.quadrature.measures import Gaussian, GaussianMixture, Uniform
from latlin.quadrature.monte_carlo import importance_sampling, monte_carlo
from latlin.quadrature.result import Evaluations, Integral, IntegrandError, Trace
from latlin.quadrature.surrogate import Hyperparameters

__all__ = [
    "BayesianQuadrature",
    "Evaluations",
    "Gaussian",
    "GaussianMixture",
    "Hyperparameters",
    "Integral",
    "IntegrandError",
    "Trace",
    "Uniform",
    "importance_sampling",
    "integrate",
    "monte_carlo",
]
