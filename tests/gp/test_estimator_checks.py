"""scikit-learn's own checks of the estimators."""

from sklearn.gaussian_process.kernels import RBF
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor


@parametrize_with_checks(
    [
        GaussianProcessRegressor(),
        GaussianProcessRegressor(RBF(), likelihood="laplace", optimizer=None),
        GaussianProcessClassifier(RBF(), engine="laplace", optimizer=None),
    ]
)
def test_estimators_keep_the_contract(estimator, check):
    check(estimator)
