"""Covariances for `latlin.engines.GaussianKL`, each with its options."""

from latlin.inference.gaussian_kl.covariances import (
    Banded,
    BlockDiagonal,
    Chevron,
    Diagonal,
    Estimated,
    Full,
    LowRank,
    Sparse,
)
from latlin.inference.gaussian_kl.subspace import Subspace

__all__ = ["Banded", "BlockDiagonal", "Chevron", "Diagonal", "Estimated", "Full", "LowRank", "Sparse", "Subspace"]
