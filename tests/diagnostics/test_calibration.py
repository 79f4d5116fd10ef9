"""Simulation-based calibration: exact engines pass, wrong posteriors do not, every kind of estimator can be asked."""

from types import SimpleNamespace

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.diagnostics.calibration import Calibration, calibrate

ROWS = np.random.default_rng(0).normal(size=(6, 2))


def simulate(rng):
    w = rng.normal(size=2)
    y = ROWS @ w + 0.5 * rng.normal(size=6)
    return w, LatentLinearModel([GaussianFactor(dim=2), SiteFactor(ROWS, potentials.Gaussian(y, 0.5))])


@pytest.mark.parametrize("engine", ["laplace", "gkl", "ep", "lvb"])
def test_ranks_of_exact_engines_are_uniform(engine):
    found = calibrate(lambda model: infer(model, engine), simulate, n_runs=300, n_draws=99, random_state=1)
    assert np.all(found.p_values() > 0.01)
    # three standard errors of a frequency in 300 runs
    np.testing.assert_allclose(found.coverage(0.9), 0.9, atol=3 * np.sqrt(0.9 * 0.1 / 300))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_widths_are_found(factor):
    def fit(model):
        post = infer(model, "gkl")
        return SimpleNamespace(sample=lambda n, rng: post.mean + factor * (post.sample(n, rng) - post.mean))

    found = calibrate(fit, simulate, n_runs=200, n_draws=99, random_state=1)
    assert np.all(found.p_values() < 1e-3)
    assert np.all((found.coverage(0.8) > 0.8) == (factor > 1))


class Mean:
    """The mean of normal data with unit noise and a standard normal prior, as an estimator."""

    def fit(self, X, y):
        n = len(y)
        self.posterior_ = SimpleNamespace(
            sample=lambda count, rng: rng.normal(y.sum() / (n + 1), (n + 1) ** -0.5, size=(count, 1))
        )
        return self


def test_estimators_are_fitted_and_left_alone():
    def data(rng):
        w = rng.normal()
        return w, (np.zeros((4, 1)), w + rng.normal(size=4))

    estimator = Mean()
    found = calibrate(estimator, data, n_runs=200, n_draws=19, names=["mean"], random_state=0)
    assert found.p_values(bins=5)[0] > 0.01
    assert not hasattr(estimator, "posterior_")
    table = str(found).splitlines()
    assert table[0].split() == ["parameter", "50%", "80%", "90%", "95%", "χ²", "p"]
    assert table[1].split()[0] == "mean"
    assert table[-1] == "200 runs, 19 draws each"


def test_coverage_counts_central_ranks():
    found = Calibration(np.arange(20)[:, None], 19, ("θ0",))
    for level in (0.5, 0.8, 0.9):
        assert found.coverage(level)[0] == pytest.approx(level)
    assert found.p_values(bins=5)[0] == pytest.approx(1.0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="must have fit"):
        calibrate(3, simulate)
    with pytest.raises(ValueError, match="n_runs must be an integer of at least 1"):
        calibrate(lambda model: infer(model, "gkl"), simulate, n_runs=0)
    with pytest.raises(ValueError, match="names must be 2"):
        calibrate(lambda model: infer(model, "gkl"), simulate, n_runs=1, n_draws=3, names=["one"], random_state=0)
    with pytest.raises(ValueError, match="simulate gives 2 parameters, but the posterior draws 1"):
        calibrate(lambda model: SimpleNamespace(sample=lambda n, rng: np.zeros((n, 1))), simulate, random_state=0)
    with pytest.raises(ValueError, match="level must lie"):
        Calibration(np.zeros((1, 1), int), 9, ("θ0",)).coverage(1.0)
