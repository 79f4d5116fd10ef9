"""Factor analysis of columns of different kinds."""

from latlin.factor.mixed.estimator import MixedFactorAnalysis

__all__ = ["MixedFactorAnalysis"]
