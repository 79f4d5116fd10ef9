"""Posteriors of neural-network weights from the iterates of SGD (needs PyTorch: latlin[torch])."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("latlin.swag needs PyTorch: install latlin[torch]") from error

from latlin.swag.factor_posterior import FactorPosterior
from latlin.swag.multi import MultiFactorPosterior

__all__ = ["FactorPosterior", "MultiFactorPosterior"]
