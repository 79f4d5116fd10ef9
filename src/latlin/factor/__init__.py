"""Factor models: factor analysis in memory, with missing data, and on streams."""

from latlin.factor._choice import ComponentChoice, choose_components
from latlin.factor._heywood import HeywoodWarning
from latlin.factor.binary_factor_analysis import BinaryFactorAnalysis
from latlin.factor.factor_analysis import FactorAnalysis
from latlin.factor.group_factor_analysis import GroupFactorAnalysis
from latlin.factor.mixed_factor_analysis import MixedFactorAnalysis
from latlin.factor.noisy_ica import NoisyICA

__all__ = [
    "BinaryFactorAnalysis",
    "ComponentChoice",
    "FactorAnalysis",
    "GroupFactorAnalysis",
    "HeywoodWarning",
    "MixedFactorAnalysis",
    "NoisyICA",
    "choose_components",
]
