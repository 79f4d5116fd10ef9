"""Tables of numbers, counts or yes and no as a product of two factors, cells missing at will."""

from latlin.factor.matrix.estimator import MatrixFactorization

__all__ = ["MatrixFactorization"]
