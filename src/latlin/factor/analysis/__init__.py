"""Factor analysis: direct, by EM, in streams, with missing cells."""

from latlin.factor.analysis.estimator import FactorAnalysis

__all__ = ["FactorAnalysis"]
