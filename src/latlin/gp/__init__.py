"""Floor 3: Gaussian processes with non-Gaussian likelihoods, and evidence maximisation."""

from latlin.gp.classifier import GaussianProcessClassifier
from latlin.gp.regressor import GaussianProcessRegressor

__all__ = ["GaussianProcessClassifier", "GaussianProcessRegressor"]
