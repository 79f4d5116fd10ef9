"""Between the engines and the estimators: hyperparameters, maximised or integrated.

`Space` names the numbers with their ranges and priors, `maximise` and `integrate` learn them from a function that fits
at given values, and `averaged_posterior` makes one posterior of the fits.
"""

from latlin.hyper.evidence import LearntModel, integrate_evidence, maximise_evidence
from latlin.hyper.learn import Component, Learnt, averaged_posterior, integrate, maximise
from latlin.hyper.marginals import HyperparameterTable, Marginal
from latlin.hyper.space import Evaluate, Evaluation, Hyperparameter, Space

__all__ = [
    "Component",
    "Evaluate",
    "Evaluation",
    "Hyperparameter",
    "HyperparameterTable",
    "Learnt",
    "LearntModel",
    "Marginal",
    "Space",
    "averaged_posterior",
    "integrate",
    "integrate_evidence",
    "maximise",
    "maximise_evidence",
]
