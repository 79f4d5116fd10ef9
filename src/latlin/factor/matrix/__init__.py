"""Tables of numbers, counts or yes and no as products of two or three factors, cells missing at will."""

from latlin.factor.matrix.estimator import MatrixFactorization
from latlin.factor.matrix.trilinear import TrilinearFactorization

__all__ = ["MatrixFactorization", "TrilinearFactorization"]
