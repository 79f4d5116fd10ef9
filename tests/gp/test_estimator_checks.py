"""scikit-learn's own checks of estimators that are not as they come: see `tests/test_estimator_checks.py`."""

from sklearn.gaussian_process.kernels import RBF
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor


@parametrize_with_checks(
    [
        GaussianProcessRegressor(RBF(), likelihood="laplace", optimizer=None),
        GaussianProcessClassifier(RBF(), engine="laplace", optimizer=None),
    ]
)
def test_estimators_keep_the_contract(estimator, check):
    check(estimator)
