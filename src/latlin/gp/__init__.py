"""Floor 3: Gaussian processes with non-Gaussian likelihoods, and evidence maximisation."""

from latlin.gp.classifier import GaussianProcessClassifier
from latlin.gp.dense import Dense
from latlin.gp.grid import Grid
from latlin.gp.inducing import Inducing
from latlin.gp.kernels import Columns, Cosine
from latlin.gp.regressor import GaussianProcessRegressor
from latlin.gp.state_space import StateSpace
from latlin.gp.vecchia import Vecchia

__all__ = [
    "Columns",
    "Cosine",
    "Dense",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "Grid",
    "Inducing",
    "StateSpace",
    "Vecchia",
]
