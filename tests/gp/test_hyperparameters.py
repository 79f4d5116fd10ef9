"""Hyperparameters of Gaussian processes: priors in the units of the data, averages, and intervals that cover."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import latlin
from latlin.densities.density import Mixture
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.priors import Flat, Gamma, HalfNormal, InverseGamma, LogNormal

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (20, 1))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(20)
NEW = np.linspace(0.0, 6.0, 7)[:, None]


@pytest.fixture(scope="module")
def averaged():
    return GaussianProcessRegressor().fit(X, Y)


def test_small_processes_are_integrated_by_default(averaged, tmp_path):
    table = averaged.hyperparameters_
    assert table.manner == "integrated"
    assert table.names == ("k1__constant_value", "k2__length_scale", "noise_scale")
    assert isinstance(averaged.posterior_.density, Mixture)
    averaged.save(tmp_path / "process.npz")
    again = latlin.load(tmp_path / "process.npz")
    np.testing.assert_allclose(again.predict_quantiles(NEW), averaged.predict_quantiles(NEW), rtol=1e-8)
    assert repr(again.hyperparameters_) == repr(table)
    assert again.log_evidence_ == averaged.log_evidence_


def test_default_priors_are_in_the_units_of_the_data(averaged):
    table = averaged.hyperparameters_
    assert table["noise_scale"]["prior"] == repr(LogNormal(float(np.log(0.3 * Y.std())), 1.5))
    best = GaussianProcessRegressor(hyperparameters="maximise").fit(X, Y).hyperparameters_
    assert best["noise_scale"]["prior"] == repr(Gamma(2.0, 2.0 / Y.std()))
    assert table["k2__length_scale"]["prior"] == repr(LogNormal(float(np.log(X.std())), 1.5))
    assert table["k1__constant_value"]["prior"] == repr(LogNormal(float(np.log(np.mean(Y**2))), 1.5))


def test_answers_are_averages_of_the_parts(averaged):
    process = averaged.process_
    y = np.sin(NEW[:, 0])
    logs = [np.log(w) + p.predictive(NEW).log_density(y) for w, p in zip(process.weights, process.parts, strict=True)]
    np.testing.assert_allclose(averaged.log_predictive_density(NEW, y), logsumexp(logs, axis=0), rtol=1e-9)
    mean, sd = averaged.predict(NEW, return_std=True)
    _, cov = averaged.predict(NEW, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd, rtol=1e-7)
    np.testing.assert_allclose(mean, process.weights @ np.stack([p.means(NEW) for p in process.parts]))
    draws = averaged.sample_y(NEW, 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    low, high = averaged.predict_quantiles(NEW, [0.1, 0.9]).T
    inside = np.mean((draws > low[:, None]) & (draws < high[:, None]), axis=1)
    np.testing.assert_allclose(inside, 0.8, atol=0.02)


def test_leaving_one_out_of_an_average_is_a_refit_of_it(averaged):
    """p(y_n | others) of the average, against the ratio of integrated evidences with and without the row."""
    options = {
        "kernel": ConstantKernel(1.0) * RBF(1.5),
        "likelihood_params": {"scale": 0.1},
        "fixed_likelihood": ["scale"],
    }
    priors = {"k1__constant_value": HalfNormal(2.0), "k2__length_scale": InverseGamma(3.0, 3.0)}
    whole = GaussianProcessRegressor(**options, priors=priors, hyperparameters="integrate").fit(X, Y)
    kept = np.arange(len(Y)) != 4
    part = GaussianProcessRegressor(**options, priors=priors, hyperparameters="integrate").fit(X[kept], Y[kept])
    assert whole.leave_one_out()[4] == pytest.approx(whole.log_evidence_ - part.log_evidence_, abs=0.01)
    assert part.log_predictive_density(X[4:5], Y[4:5])[0] == pytest.approx(whole.leave_one_out()[4], abs=0.01)


def test_the_fine_lattice_agrees_with_the_default(averaged):
    fine = GaussianProcessRegressor(hyperparameters="integrate").fit(X, Y)
    assert fine.log_evidence_ == pytest.approx(averaged.log_evidence_, abs=0.1)
    np.testing.assert_allclose(
        fine.predict(NEW, return_std=True)[1], averaged.predict(NEW, return_std=True)[1], rtol=0.06
    )


def test_flat_priors_give_the_optimum_of_the_evidence():
    model = GaussianProcessRegressor(hyperparameters="maximise", priors=Flat()).fit(X, Y)
    assert model.hyperparameters_.manner == "maximised"
    _, slope = model.log_marginal_likelihood(model.theta_, eval_gradient=True)
    assert np.abs(slope).max() < 0.05
    penalised = GaussianProcessRegressor(hyperparameters="maximise").fit(X, Y)
    assert penalised.log_evidence_ < model.log_evidence_ + 1e-6


def test_few_rows_with_relevances_cover():
    """Twenty rows, four inputs of which two matter: maximised intervals fail, averaged ones hold."""
    covers = {"flat": [], "auto": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        Z = rng.uniform(-1.0, 1.0, (220, 4))
        y = np.sin(3.0 * Z[:, 0]) + Z[:, 1] ** 2 + 0.1 * rng.standard_normal(220)
        kernel = ConstantKernel(1.0) * RBF(np.ones(4))
        for name, options in (("flat", {"hyperparameters": "maximise", "priors": Flat()}), ("auto", {})):
            model = GaussianProcessRegressor(kernel, **options).fit(Z[:20], y[:20])
            low, high = model.predict_quantiles(Z[20:], [0.05, 0.95]).T
            covers[name].append(np.mean((y[20:] > low) & (y[20:] < high)))
    assert 0.8 < np.mean(covers["auto"]) < 0.97
    assert np.mean(covers["flat"]) < np.mean(covers["auto"]) - 0.15


def test_an_amplitude_at_an_end_is_said():
    """Separable labels under expectation propagation and flat priors: the amplitude has no optimum."""
    Z = np.linspace(-1.0, 1.0, 16)[:, None]
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(1.0, "fixed")
    options = {"engine": "ep", "hyperparameters": "maximise", "priors": Flat()}
    bare = GaussianProcessClassifier(kernel, **options).fit(Z, Z[:, 0] > 0.0)
    assert bare.hyperparameters_[0].at_bound == ("k1__constant_value",)
    assert bare.posteriors_[0].caution[0] == "wrong"
    assert "k1__constant_value runs to the upper end" in bare.messages_[0]
    assert GaussianProcessClassifier(kernel, engine="ep").fit(Z, Z[:, 0] > 0.0).hyperparameters_[0].at_bound == ()


@pytest.mark.parametrize(("multi_class", "count"), [("one-vs-rest", 3), ("joint", 1)])
def test_classes_by_averages(tmp_path, multi_class, count):
    Z = RNG.standard_normal((24, 2))
    labels = np.digitize(Z[:, 0], [-0.5, 0.5])
    model = GaussianProcessClassifier(multi_class=multi_class).fit(Z, labels)
    assert [table.manner for table in model.hyperparameters_] == ["integrated"] * count
    assert model.score(Z, labels) > 0.85
    model.save(tmp_path / "classes.npz")
    np.testing.assert_allclose(
        latlin.load(tmp_path / "classes.npz").predict_proba(Z), model.predict_proba(Z), rtol=1e-7
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyperparameters": "guess"}, "hyperparameters must be one of"),
        ({"priors": 3.0}, "priors must map names"),
        ({"priors": {"length": Flat()}}, "priors names 'length'; hyperparameters are k1__constant_value, k2__length"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressor(**options).fit(X, Y)
