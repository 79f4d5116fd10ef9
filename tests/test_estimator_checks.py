"""scikit-learn's own checks of every estimator as it comes, without exceptions."""

import os
from importlib import import_module
from inspect import isclass

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.linear import BayesianBetaRegression, BayesianBinomialRegression

ROOMS = ("additive", "design", "factor", "gp", "linear", "mixture", "quadrature")


class Chances(BayesianBinomialRegression):
    """The checks bring numbers of any size: each becomes successes among ten trials."""

    def _training(self, X, y, **options):
        X, y = super()._training(X, y, **options)
        return X, np.column_stack([np.round(10.0 * expit(0.2 * y)), np.full(len(y), 10.0)])

    def _checks_of_family(self):
        """Made-up successes vary as they like."""
        return []

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class Shares(BayesianBetaRegression):
    """As `Chances`, with shares."""

    def _training(self, X, y, **options):
        X, y = super()._training(X, y, **options)
        return X, expit(1.5 * np.tanh(y))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


#: estimators of responses that the checks do not bring, by those that make them of what the checks bring
INSTEAD = {BayesianBinomialRegression: Chances, BayesianBetaRegression: Shares}
#: models of data frames with named columns, which need a formula or terms, and of tables with three indices
OTHER_DATA = ("AdditiveModel", "TrilinearFactorization")


def estimators():
    """Every public estimator."""
    modules = [import_module(f"latlin.{room}") for room in ROOMS]
    found = {getattr(module, name) for module in modules for name in module.__all__}
    classes = [kind for kind in found if isclass(kind) and issubclass(kind, BaseEstimator)]
    return sorted((kind for kind in classes if kind.__name__ not in OTHER_DATA), key=lambda kind: kind.__name__)


#: checks that repeat another one with the same numbers in another container
VARIANTS = ("check_estimator_sparse_matrix", "readonly_memmap=True", "check_readonly_memmap_input")
#: estimators with which the variants are always run, one per way in which rows are taken
DOORS = (
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "GaussianProcessRegressor",
    "BayesianGaussianMixture",
)


def is_left_out(estimator, check):
    """Whether a check is left to `LATLIN_THOROUGH=1`: all linear estimators take rows by the same lines."""
    variant = any(text in str(check) for text in VARIANTS)
    return variant and type(estimator).__name__ not in DOORS and "LATLIN_THOROUGH" not in os.environ


def test_all_are_here():
    assert len(estimators()) >= 21


@pytest.mark.filterwarnings("ignore::latlin.factor.HeywoodWarning")
@parametrize_with_checks([INSTEAD.get(kind, kind)() for kind in estimators()])
def test_the_estimators_as_they_come_keep_scikit_learns_rules(estimator, check):
    if is_left_out(estimator, check):
        pytest.skip("the same numbers in another container; LATLIN_THOROUGH=1 runs them for every estimator")
    check(estimator)
