"""Binary factor analysis: features that are on or off."""

from latlin.factor.binary.estimator import BinaryFactorAnalysis

__all__ = ["BinaryFactorAnalysis"]
