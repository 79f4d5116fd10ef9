"""Pictures of mixtures, factors, processes and hyperparameters draw what the models say."""

import numpy as np
import pytest
from scipy.stats import norm

from latlin import plot
from latlin.factor import FactorAnalysis
from latlin.gp import GaussianProcessRegressor
from latlin.linear import BayesianLinearRegression
from latlin.mixture import BayesianGaussianMixture

pytest.importorskip("matplotlib").use("Agg")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical", "fixed"])
def test_ellipses_hold_their_share_of_a_cluster(covariance):
    X = np.concatenate([RNG.normal(-6, 1, (2000, 3)), RNG.normal(6, 1, (1000, 3))])
    mixture = BayesianGaussianMixture(2, covariance=covariance, random_state=0).fit(X)
    ax = plot.clusters(mixture, X, (0, 2), coverage=0.8, names=["a", "b", "c"])
    assert [line.get_label() for line in ax.lines] == ["2000 rows", "1000 rows"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "c")
    edge = np.column_stack(ax.lines[0].get_data())
    from matplotlib.path import Path

    assert Path(edge).contains_points(X[:2000][:, [0, 2]]).mean() == pytest.approx(0.8, abs=0.04)
    with pytest.raises(ValueError, match="two columns below 3"):
        plot.clusters(mixture, X, (0, 5))
    with pytest.raises(ValueError, match="coverage must be a number above 0 and below 1"):
        plot.clusters(mixture, X, coverage=1.5)


def test_loadings_are_drawn_by_factor():
    H = RNG.standard_normal((300, 2))
    X = np.column_stack([H[:, [0, 0, 0]], H[:, [1, 1, 1]]]) + 0.3 * RNG.standard_normal((300, 6))
    model = FactorAnalysis(2, rotate="varimax").fit(X)
    ax = plot.loadings(model, names=list("abcdef"))
    drawn = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(model.components_.T, axis=0))
    called = [label.get_text() for label in ax.get_yticklabels()]
    assert {frozenset(called[:3]), frozenset(called[3:])} == {frozenset("abc"), frozenset("def")}


def test_a_process_has_its_mean_and_band():
    X = np.linspace(0, 6, 40)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(40)
    model = GaussianProcessRegressor(hyperparameters="maximise").fit(X, y)
    ax = plot.process(model, X, y, coverage=0.8, points=40)
    mean, std = model.predict_latent(X, return_std=True)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, rtol=1e-6)
    top = ax.collections[1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx((mean + norm.ppf(0.9) * std).max(), rel=1e-6)
    new = plot.process(model, X, noise=True, points=40)
    low, high = model.predict_quantiles(X, [0.05, 0.95]).T
    band = new.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((low.min(), high.max()), rel=1e-6)
    with pytest.raises(ValueError, match="feature must be below 1"):
        plot.process(model, X, feature=1)


def test_hyperparameters_of_linear_models_and_processes_have_densities():
    X = RNG.standard_normal((40, 2))
    y = X @ [1.0, 2.0] + 0.3 * RNG.standard_normal(40)
    for model in (BayesianLinearRegression(hyperparameters="integrate"), GaussianProcessRegressor()):
        found = model.fit(X, y).hyperparameters_.marginals
        axes = plot.densities(model)
        assert [ax.get_xlabel() for ax in axes] == list(found)
        for ax, marginal in zip(axes, found.values(), strict=True):
            np.testing.assert_allclose(ax.lines[0].get_ydata(), marginal.density)
