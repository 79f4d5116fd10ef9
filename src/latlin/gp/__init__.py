"""Floor 3: Gaussian processes with non-Gaussian likelihoods, and evidence maximisation."""

from latlin.gp.classifier import GaussianProcessClassifier
from latlin.gp.dense import Dense
from latlin.gp.inducing import Inducing
from latlin.gp.regressor import GaussianProcessRegressor

__all__ = ["Dense", "GaussianProcessClassifier", "GaussianProcessRegressor", "Inducing"]
