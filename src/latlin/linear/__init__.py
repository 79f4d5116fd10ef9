"""Bayesian linear models with the face of scikit-learn: regression, classification, counts, ordered classes."""

from latlin.linear.beta import BayesianBetaRegression
from latlin.linear.binomial import BayesianBinomialRegression
from latlin.linear.classifiers import BayesianProbitRegression
from latlin.linear.counts import BayesianCountRegression, BayesianPoissonRegression
from latlin.linear.gamma import BayesianGammaRegression
from latlin.linear.gaussian_regression import BayesianLinearRegression
from latlin.linear.logistic import BayesianLogisticRegression
from latlin.linear.multinomial import BayesianMultinomialProbitRegression, BayesianSoftmaxRegression
from latlin.linear.ordinal import BayesianOrdinalRegression
from latlin.linear.robust import BayesianQuantileRegression, RobustRegression
from latlin.linear.sparse import SparseRegression
from latlin.linear.survival import BayesianSurvivalRegression

__all__ = [
    "BayesianBetaRegression",
    "BayesianBinomialRegression",
    "BayesianCountRegression",
    "BayesianGammaRegression",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianMultinomialProbitRegression",
    "BayesianOrdinalRegression",
    "BayesianPoissonRegression",
    "BayesianProbitRegression",
    "BayesianQuantileRegression",
    "BayesianSoftmaxRegression",
    "BayesianSurvivalRegression",
    "RobustRegression",
    "SparseRegression",
]
