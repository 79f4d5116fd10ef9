"""scikit-learn's own checks of every estimator, in several configurations, without exceptions."""

import numpy as np
from scipy.special import expit
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.linear import (
    BayesianBetaRegression,
    BayesianBinomialRegression,
    BayesianCountRegression,
    BayesianGammaRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    BayesianQuantileRegression,
    BayesianSoftmaxRegression,
    BayesianSurvivalRegression,
    RobustRegression,
    SparseRegression,
)


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
        return X, expit(0.2 * y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


CONFIGURATIONS = [
    BayesianLinearRegression(),
    BayesianLinearRegression(
        engine="laplace", prior_scale=1.0, noise_scale=0.5, fit_intercept=False, standardise=False
    ),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(engine="laplace", prior_scale=1.0, standardise=False),
    BayesianProbitRegression(engine="gkl", prior_scale=1.0),
    BayesianSoftmaxRegression(prior_scale=1.0),
    BayesianPoissonRegression(engine="laplace"),
    BayesianOrdinalRegression(engine="laplace", prior_scale=1.0),
    RobustRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"),
    SparseRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"),
    BayesianCountRegression(engine="laplace"),
    BayesianGammaRegression(engine="laplace", prior_scale=1.0),
    Chances(engine="laplace", prior_scale=1.0),
    Shares(engine="laplace", prior_scale=1.0, precision=2.0),
    BayesianSurvivalRegression(engine="laplace", prior_scale=1.0, shape=1.5),
    BayesianQuantileRegression(engine="gkl", prior_scale=1.0, noise_scale=1.0),
    BayesianGammaRegression("log-normal", prior_scale=1.0, scale=0.3),
]


@parametrize_with_checks(CONFIGURATIONS)
def test_the_estimators_keep_scikit_learns_rules(estimator, check):
    check(estimator)
