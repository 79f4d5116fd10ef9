"""Factor models: factor analysis in memory, with missing data, and on streams."""

from latlin.factor.analysis.choice import ComponentChoice, HeywoodWarning, choose_components
from latlin.factor.analysis.estimator import FactorAnalysis
from latlin.factor.binary.estimator import BinaryFactorAnalysis
from latlin.factor.group.estimator import GroupFactorAnalysis
from latlin.factor.ica.estimator import NoisyICA
from latlin.factor.matrix.estimator import MatrixFactorization
from latlin.factor.matrix.trilinear import TrilinearFactorization
from latlin.factor.mixed.estimator import MixedFactorAnalysis

__all__ = [
    "BinaryFactorAnalysis",
    "ComponentChoice",
    "FactorAnalysis",
    "GroupFactorAnalysis",
    "HeywoodWarning",
    "MatrixFactorization",
    "MixedFactorAnalysis",
    "NoisyICA",
    "TrilinearFactorization",
    "choose_components",
]
