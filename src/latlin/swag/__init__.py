"""Posteriors of neural-network weights from the iterates of SGD (needs PyTorch: latlin[torch])."""

from latlin.swag.factor_posterior import FactorPosterior
from latlin.swag.multi import MultiFactorPosterior

__all__ = ["FactorPosterior", "MultiFactorPosterior"]
