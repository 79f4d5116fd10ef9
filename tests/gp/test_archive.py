"""Saved models predict the same; files that are not ours are refused."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

import latlin
from gp_problems import KERNEL, inputs, targets
from latlin import engines, potentials
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Vecchia
from latlin.numerics.archive import read_archive, write_archive
from latlin.numerics.stored import Decoder, Encoder


@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": "student-t", "fixed_likelihood": ("df",), "max_iter": 3},
        {"likelihood": potentials.Laplace(scale=0.2), "engine": engines.GaussianKL(tol=1e-5), "optimizer": None},
        {"kernel": Matern(1.5, nu=1.5) + WhiteKernel(0.1), "normalise_y": True, "optimizer": None},
        {"likelihood": "ordinal", "optimizer": None},
    ],
)
@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_a_saved_regressor_predicts_the_same(options, tmp_path):
    X, kind = inputs(20), options.get("likelihood", "gaussian")
    y = targets(kind, X)
    gp = GaussianProcessRegressor(**({"kernel": KERNEL} | options)).fit(X, y)
    gp.save(tmp_path / "gp.npz")
    again = latlin.load(tmp_path / "gp.npz")
    for ours, theirs in zip(again.predict(X[:5], return_std=True), gp.predict(X[:5], return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    np.testing.assert_allclose(again.theta_, gp.theta_)
    assert again.log_evidence_ == gp.log_evidence_
    assert again.message_ == gp.message_
    np.testing.assert_allclose(
        again.log_marginal_likelihood(eval_gradient=True)[1],
        gp.log_marginal_likelihood(eval_gradient=True)[1],
        atol=1e-6,
    )


@pytest.mark.parametrize("approximation", ["exact", Vecchia(4), "state-space"])
def test_a_process_by_laplaces_method_is_that_of_its_stored_sites(approximation, tmp_path):
    """Its Gaussian follows from the stand-ins of the sites, however early Newton's method stopped."""
    X, y = inputs(20)[:, :1], targets("poisson", inputs(20))
    for tol in (1e-6, 1.0):
        options = {"approximation": approximation, "engine": engines.Laplace(tol=tol), "optimizer": None}
        gp = GaussianProcessRegressor(Matern(1.0, nu=1.5), likelihood="poisson", **options).fit(X, y)
        gp.save(tmp_path / "gp.latlin")
        again = latlin.load(tmp_path / "gp.latlin")
        for ours, theirs in zip(again.predict_latent(X, True), gp.predict_latent(X, True), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(again.posterior_.mean, gp.posterior_.mean, rtol=1e-12, atol=1e-12)


def test_a_saved_classifier_predicts_the_same(tmp_path):
    X = inputs(24)
    y = np.array(["a", "b", "c"])[targets("ordinal", X).astype(int)]
    gp = GaussianProcessClassifier(KERNEL, engine="ep", optimizer=None).fit(X, y)
    gp.save(tmp_path / "gp.npz")
    again = GaussianProcessClassifier.load(tmp_path / "gp.npz")
    np.testing.assert_allclose(again.predict_proba(X), gp.predict_proba(X), atol=1e-10)
    assert list(again.predict(X)) == list(gp.predict(X))


def test_only_known_things_are_made():
    encoder = Encoder()
    stored = encoder.encode(KERNEL, "kernel")
    again = Decoder(encoder.arrays).decode(stored)
    assert repr(again) == repr(KERNEL)
    np.testing.assert_array_equal(again.bounds, KERNEL.bounds)
    for wrong in ({"class": "os.system", "parts": {}}, {"class": "latlin.potentials.eval", "parts": {}}, {"other": 1}):
        with pytest.raises(ValueError, match="not a stored value"):
            Decoder({}).decode(wrong)
    with pytest.raises(ValueError, match="cannot be saved"):
        Encoder().encode(object(), "thing")


def test_damaged_files_are_refused(tmp_path):
    X = inputs(8)
    gp = GaussianProcessRegressor(KERNEL, optimizer=None).fit(X, targets("gaussian", X))
    path = tmp_path / "gp.npz"
    gp.save(path)
    with pytest.raises(ValueError, match="GaussianProcessRegressor"):
        GaussianProcessClassifier.load(path)
    kind, header, arrays = read_archive(path)
    del header["attributes"]["process_"]["parts"]["setting"]["parts"]["kernel"]
    write_archive(path, kind, header, arrays)
    with pytest.raises(ValueError, match="not a readable"):
        latlin.load(path)
