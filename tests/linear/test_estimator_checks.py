"""scikit-learn's own checks of every estimator, in several configurations, without exceptions."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)

CONFIGURATIONS = [
    BayesianLinearRegression(),
    BayesianLinearRegression(
        engine="laplace", prior_scale=1.0, noise_scale=0.5, fit_intercept=False, standardise=False
    ),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(engine="laplace", prior_scale=1.0, standardise=False),
    BayesianProbitRegression(engine="gkl", prior_scale=1.0),
    BayesianPoissonRegression(engine="laplace"),
    BayesianOrdinalRegression(engine="laplace", prior_scale=1.0),
    RobustRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"),
    SparseRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"),
]


@parametrize_with_checks(CONFIGURATIONS)
def test_the_estimators_keep_scikit_learns_rules(estimator, check):
    check(estimator)
