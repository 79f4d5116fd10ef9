"""Evidence maximisation: it rises, stays in bounds, and bounds keep their order."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import parallel_config
from scipy.optimize import OptimizeResult, minimize
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import latlin
from gp_problems import KERNEL, inputs, targets
from latlin import potentials
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, search
from latlin.gp.search import Found, continue_search, maximise_evidence
from latlin.gp.setting import Likelihood, Setting
from latlin.numerics.alerts import ConvergenceWarning
from latlin.priors import Flat


@pytest.mark.parametrize(("likelihood", "engine"), [("student-t", "gkl"), ("laplace", "ep"), ("poisson", "laplace")])
def test_evidence_rises_to_a_flat_place(likelihood, engine):
    X = inputs(30)
    y = targets(likelihood, X)
    options = {"likelihood": likelihood, "engine": engine, "fixed_likelihood": ("df",) * (likelihood == "student-t")}
    before = GaussianProcessRegressor(KERNEL, optimizer=None, **options).fit(X, y)
    gp = GaussianProcessRegressor(KERNEL, hyperparameters="maximise", priors=Flat(), **options).fit(X, y)
    assert gp.converged_
    assert gp.log_evidence_ > before.log_evidence_ + 0.1
    assert gp.log_evidence_ == pytest.approx(gp.trace_.max(), abs=1e-4)
    _, slope = gp.log_marginal_likelihood(eval_gradient=True)
    bounds = gp.process_.setting.bounds
    inside = (gp.theta_ > bounds[:, 0] + 1e-6) & (gp.theta_ < bounds[:, 1] - 1e-6)
    assert np.abs(slope[inside]).max() < 0.05


@pytest.mark.parametrize("likelihood", ["laplace", "student-t", "cauchy"])
def test_gaussian_kl_is_never_below_the_local_bound(likelihood):
    X = inputs(25)
    y = targets(likelihood, X)
    rng = np.random.default_rng(0)
    for _ in range(4):
        kernel = ConstantKernel(np.exp(rng.normal())) * RBF(np.exp(rng.normal(size=2))) + WhiteKernel(0.01)
        params = {"scale": 0.1 * np.exp(rng.normal())}
        bounds = [
            GaussianProcessRegressor(
                kernel, likelihood=likelihood, likelihood_params=params, engine=engine, optimizer=None
            )
            .fit(X, y)
            .log_evidence_
            for engine in ("lvb", "gkl")
        ]
        assert bounds[1] >= bounds[0] - 1e-6


def test_bounds_and_fixed_parameters_are_kept():
    X = inputs(30)
    y = targets("student-t", X)
    kernel = ConstantKernel(1.0, "fixed") * RBF(1.0, (0.8, 1.2))
    gp = GaussianProcessRegressor(kernel, likelihood="student-t", fixed_likelihood=("df",)).fit(X, y)
    assert gp.kernel_.k1.constant_value == 1.0
    assert 0.8 <= gp.kernel_.k2.length_scale <= 1.2
    assert float(gp.likelihood_.df) == 4.0
    assert kernel.k2.length_scale == 1.0


def test_restarts_never_lose():
    X = inputs(25)
    y = targets("labels", X)
    plain = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(0.05)).fit(X, y)
    more = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(0.05), n_restarts=2, random_state=0).fit(X, y)
    assert more.log_evidence_ >= plain.log_evidence_ - 1e-6


def test_a_callable_optimises_as_in_scikit_learn():
    X = inputs(25)
    y = targets("gaussian", X)

    def optimizer(function, first, bounds):
        found = minimize(function, first, jac=True, bounds=bounds, method="L-BFGS-B")
        return found.x, found.fun

    ours = GaussianProcessRegressor(KERNEL).fit(X, y)
    theirs = GaussianProcessRegressor(KERNEL, optimizer=optimizer).fit(X, y)
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, abs=1e-4)


def test_likelihood_parameters_from_held_out_data():
    X = inputs(40)
    y = targets("student-t", X)
    grid = {"scale": [0.1, 5.0], "df": [3.0]}
    gp = GaussianProcessRegressor(
        KERNEL, likelihood="student-t", validation_grid=grid, random_state=0, max_iter=20
    ).fit(X, y)
    assert float(gp.likelihood_.scale) == 0.1
    assert float(gp.likelihood_.df) == 3.0
    assert len(gp.theta_) == KERNEL.n_dims


@pytest.mark.parametrize("normalise", [False, True])
def test_the_default_kernel_follows_the_units(normalise):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(25)
    plain = GaussianProcessRegressor(normalise_y=normalise).fit(X, y)
    other = GaussianProcessRegressor(normalise_y=normalise).fit(1e4 * X, 1e3 * y)
    assert other.log_evidence_ + 25 * np.log(1e3) == pytest.approx(plain.log_evidence_, abs=1e-4)
    np.testing.assert_allclose(other.predict(1e4 * X), 1e3 * plain.predict(X), rtol=1e-3, atol=1.0)
    labels = y > 0.0
    near, far = (GaussianProcessClassifier(engine="laplace").fit(unit * X, labels) for unit in (1.0, 1e4))
    assert far.log_evidence_ == pytest.approx(near.log_evidence_, abs=1e-4)


def test_constant_targets_start_from_their_size():
    X = np.random.default_rng(0).standard_normal((25, 3))
    y = np.full(25, 0.18191711860234822)  # whose standard deviation is a rounding error
    model = GaussianProcessRegressor().fit(X, y)
    assert model.log_evidence_ > 0.0
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-3)


def test_the_result_does_not_depend_on_the_jobs():
    X, labels = inputs(30), np.arange(30) % 3
    options = {"engine": "laplace", "n_restarts": 1, "max_iter": 5, "random_state": 0}
    with pytest.warns(ConvergenceWarning), parallel_config(backend="threading"):
        one, two = (GaussianProcessClassifier(KERNEL, n_jobs=jobs, **options).fit(X, labels) for jobs in (None, 2))
    np.testing.assert_array_equal(one.log_evidence_, two.log_evidence_)


@pytest.mark.parametrize("likelihood", ["negative-binomial", "zero-inflated-poisson", "gamma", "weibull", "beta"])
def test_families_of_counts_amounts_times_and_shares_learn_their_numbers(likelihood, tmp_path):
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 6.0, 40)[:, None]
    latent = 1.0 + np.sin(X[:, 0])
    y = {
        "negative-binomial": rng.poisson(np.exp(latent) * rng.gamma(2.0, 0.5, 40)),
        "zero-inflated-poisson": rng.poisson(np.exp(latent)) * (rng.random(40) < 0.7),
        "gamma": np.exp(latent) * rng.gamma(3.0, 1.0 / 3.0, 40),
        "weibull": np.exp(latent) * rng.weibull(1.5, 40),
        "beta": rng.beta(5.0 / (1.0 + np.exp(-latent)), 5.0 / (1.0 + np.exp(latent))),
    }[likelihood]
    model = GaussianProcessRegressor(likelihood=likelihood, engine="laplace", max_iter=15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    theta = model.theta_
    assert len(theta) == 2 + len(model.likelihood_.free)
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    step = 1e-4 * np.eye(len(theta))[-1]
    slope = (model.log_marginal_likelihood(theta + step) - model.log_marginal_likelihood(theta - step)) / 2e-4
    assert gradient[-1] == pytest.approx(slope, rel=1e-3, abs=1e-3)
    model.save(tmp_path / "gp.latlin")
    # a file holds the sites, from which the mode follows as exactly as the fit has found it
    loaded = latlin.load(tmp_path / "gp.latlin")
    np.testing.assert_allclose(loaded.predict_quantiles(X), model.predict_quantiles(X), rtol=1e-6)


def test_a_search_that_cannot_begin_says_why():
    class Broken:
        X = inputs(5)

        def fit_with_gradient(self, setting, start=None):
            raise ValueError("the precision has no factor")

    setting = Setting(KERNEL, Likelihood.of(potentials.Logit(1.0)))
    earlier = Found(setting, object(), np.zeros(1), True, 1, "", None)
    with pytest.raises(ValueError, match="the precision has no factor"):
        maximise_evidence(setting, Broken(), "l-bfgs-b", 0, 5, np.random.default_rng(0), False, None, earlier)


def bent(theta):
    """A quartic valley, its gradient and its minimum at (1, 1, 0)."""
    x, y, z = theta
    value = 50.0 * (y - x**2) ** 2 + (1.0 - x) ** 2 + z**2
    slope = [-200.0 * x * (y - x**2) - 2.0 * (1.0 - x), 100.0 * (y - x**2), 2.0 * z]
    return 3.0 + value, np.array(slope)


def test_a_search_goes_on_from_a_known_spread_and_ends_where_little_is_promised():
    free = np.tile([-5.0, 5.0], (3, 1))
    curved = np.array([[202.0, -100.0, 0.0], [-100.0, 50.0, 0.0], [0.0, 0.0, 1.0]]) * 2.0
    calls = []

    def counted(theta):
        calls.append(theta)
        return bent(theta)

    near = continue_search(counted, np.array([1.02, 1.05, 0.3]), np.linalg.inv(curved), free, 1e-6, 100)
    assert near.converged
    assert near.value == pytest.approx(-3.0, abs=1e-5)
    assert len(calls) == near.n_iter + 1 < 8
    # from a spread that is far too wide, and far away, it takes longer
    far = continue_search(bent, np.array([-1.0, 2.0, 3.0]), 1e3 * np.eye(3), free, 1e-9, 100)
    assert far.converged
    assert far.value == pytest.approx(-3.0, abs=1e-6)
    held = continue_search(
        bent, np.array([0.3, 0.2, 2.0]), np.eye(3), np.array([[-5.0, 0.5], [-5.0, 5.0], [1.0, 5.0]]), 1e-9, 100
    )
    # min over x ≤ ½ and z ≥ 1, where y = x²: 3 + ¼ + 1
    assert held.value == pytest.approx(-4.25, abs=1e-6)
    assert not continue_search(bent, np.array([-1.0, 2.0, 3.0]), np.eye(3), free, 1e-12, 2).converged


def test_a_search_that_came_back_to_its_beginning_goes_on_from_there(monkeypatch):
    def come_back(loss, start, **_):
        """A line search that has been far away and found nothing better near its beginning."""
        value, slope = loss(start)
        spread = SimpleNamespace(todense=lambda: np.eye(len(start)))
        return OptimizeResult(x=start, fun=value, jac=slope, success=True, status=0, nit=1, hess_inv=spread)

    monkeypatch.setattr(search, "minimize", come_back)
    X = inputs()
    y = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(X))
    model = GaussianProcessRegressor(KERNEL, hyperparameters="maximise", priors=Flat()).fit(X, y)
    pulls = model.log_marginal_likelihood(model.theta_, eval_gradient=True)[1]
    assert model.converged_
    assert np.abs(pulls).max() < 0.05


def test_the_spread_of_a_search_is_shared_among_more_rows():
    found = Found(None, None, None, True, 1, "", spread=np.eye(2), rows=100)
    np.testing.assert_allclose(found.spread_with(400), 0.25 * np.eye(2))
    assert found.spread_with(0) is None
