"""Factor models: factor analysis in memory, with missing data, and on streams."""

from latlin.factor._choice import ComponentChoice, choose_components
from latlin.factor._heywood import HeywoodWarning
from latlin.factor.factor_analysis import FactorAnalysis

__all__ = ["ComponentChoice", "FactorAnalysis", "HeywoodWarning", "choose_components"]
