"""scikit-learn's own checks of linear estimators that are not as they come: see `tests/test_estimator_checks.py`."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.linear import (
    BayesianGammaRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    RobustRegression,
)

CONFIGURATIONS = [
    BayesianLinearRegression(
        engine="laplace", prior_scale=1.0, noise_scale=0.5, fit_intercept=False, standardise=False
    ),
    BayesianLogisticRegression(engine="laplace", prior_scale=1.0, standardise=False),
    BayesianOrdinalRegression(engine="laplace", prior_scale=1.0),
    RobustRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"),
    BayesianGammaRegression("log-normal", prior_scale=1.0, scale=0.3),
]


@parametrize_with_checks(CONFIGURATIONS)
def test_the_estimators_keep_scikit_learns_rules(estimator, check):
    check(estimator)
