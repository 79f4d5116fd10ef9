"""Group factor analysis: factors shared by all, some or one of several views."""

from latlin.factor.group.estimator import GroupFactorAnalysis

__all__ = ["GroupFactorAnalysis"]
