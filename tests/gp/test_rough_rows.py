"""Rows in single precision: products to six digits, double sums where single ones would round off the prior."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from latlin.distributed.blocks import LocalBlocks
from latlin.engines import GaussianKL
from latlin.gp import Inducing, alternation, inducing_fit
from latlin.gp.inducing_fit import MadeRows, fit_inducing, single_sites
from latlin.gp.inducing_model import Basis, KernelRows, fill_rows, model_of
from latlin.gp.rough_rows import RoughRows
from latlin.gp.setting import Likelihood, Setting
from latlin.inference.forms.projections import DenseProjections
from latlin.numerics.linalg import cholesky, gram, whitened_squares
from latlin.potentials import Logit, Poisson

WIDTH = 7
ROWS = np.random.default_rng(0).standard_normal((5000, WIDTH))
WEIGHTS = np.random.default_rng(1).uniform(0.0, 2.0, 5000)


def test_products_have_six_digits():
    rough = RoughRows.of(DenseProjections(ROWS))
    assert rough.rows.dtype == np.float32
    u, precision = np.arange(1.0, 1.0 + WIDTH), gram(ROWS, WEIGHTS) + np.eye(WIDTH)
    np.testing.assert_allclose(rough.times(u), ROWS @ u, atol=1e-5)
    np.testing.assert_allclose(rough.transposed_times(WEIGHTS), WEIGHTS @ ROWS, atol=1e-3)
    np.testing.assert_allclose(np.triu(rough.gram(WEIGHTS)), np.triu(gram(ROWS, WEIGHTS)), rtol=1e-6, atol=1e-3)
    factor = cholesky(precision).factor
    np.testing.assert_allclose(rough.variances(factor), whitened_squares(factor, ROWS), rtol=1e-5)
    np.testing.assert_array_equal(rough.block(slice(3, 5)), ROWS[3:5].astype(np.float32))


@pytest.mark.parametrize("weights", [1e7 * WEIGHTS, WEIGHTS - 0.1])
def test_large_and_negative_weights_get_double_sums(weights):
    rough = RoughRows.of(DenseProjections(ROWS))
    np.testing.assert_array_equal(rough.gram(weights), gram(ROWS, weights))


def problem(likelihood, n=3000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * f))) if likelihood == "logit" else rng.poisson(np.exp(f))
    template = Logit(1.0) if likelihood == "logit" else Poisson(0)
    return X, y.astype(float), Setting(ConstantKernel(2.0) * RBF([1.0, 1.5]), Likelihood.of(template), 0.2)


def test_rows_made_in_pieces_are_those_of_the_basis():
    X, y, setting = problem("logit")
    basis = Basis.of(setting, X[:WIDTH])
    rows, extra = fill_rows(basis, X)
    made, found = MadeRows(basis, X), single_sites(KernelRows(basis), LocalBlocks.of(X, y).whole)
    assert made.shape == rows.shape
    np.testing.assert_allclose(np.triu(made.gram(WEIGHTS[:3000])), np.triu(gram(rows, WEIGHTS[:3000])), rtol=1e-12)
    np.testing.assert_array_equal(found.projections.block(slice(0, 3000)), rows.astype(np.float32))
    np.testing.assert_allclose(found.sites.extra, extra)


@pytest.mark.parametrize("likelihood", ["logit", "poisson"])
def test_a_last_fit_in_single_precision_ends_at_the_optimum_of_double(likelihood, monkeypatch):
    X, y, setting = problem(likelihood)
    Z, engine = X[:40], GaussianKL(tol=1e-3)
    fitter = Inducing(inputs=Z).prepare(setting, X, y, engine, np.random.default_rng(0))
    start, basis = fitter.fit(setting), Basis.of(setting, Z)
    near = fitter.fit(setting.at(setting.theta + 0.05))
    exact = fit_inducing(basis, fitter.rows, GaussianKL(tol=1e-9), None, start, False)
    taken = []
    plain = inducing_fit.single_sites
    monkeypatch.setattr(inducing_fit, "single_sites", lambda *a: taken.append(1) or plain(*a))
    monkeypatch.setattr(inducing_fit, "SINGLE", 1)
    monkeypatch.setattr(alternation, "MANY", 1)
    found = fit_inducing(basis, fitter.rows, engine, None, near, False, 1e-4, True)
    assert taken == [1]
    assert found.posterior.evidence_kind == "lower bound"
    # below the optimum, by less than was asked and by what single precision adds
    assert -1e-5 < exact.posterior.log_evidence - found.posterior.log_evidence < 2e-4
    np.testing.assert_allclose(found.posterior.mean, exact.posterior.mean, atol=2e-2)
    new = np.random.default_rng(1).uniform(-2.0, 2.0, (50, 2))
    np.testing.assert_allclose(found.marginals(new), exact.marginals(new), atol=2e-3)
    np.testing.assert_allclose(found.leave_one_out(), exact.leave_one_out(), atol=1e-3)
    # its model makes its rows on demand
    w, r = np.arange(40.0), np.arange(3000.0)
    rows = model_of(basis, fitter.rows).sites[0].H
    np.testing.assert_allclose(found.posterior.model.sites[0].H @ w, rows @ w)
    np.testing.assert_allclose(found.posterior.model.sites[0].H.T @ r, r @ rows)
    np.testing.assert_allclose(fitter.gradient(found), fitter.gradient(exact), atol=0.1)
    assert found.posterior.diagnose(random_state=0).verdict in {"accurate", "rough"}
    # its own Gaussian has this bound by double sums too
    again = fit_bound(model_of(basis, fitter.rows), found.posterior)
    assert found.posterior.log_evidence == pytest.approx(again, rel=1e-8)


def fit_bound(model, posterior):
    """The bound of a Gaussian, by double sums: Σ⟨log φ⟩ − KL(q ‖ N(0, I))."""
    factor, m, S = model.sites[0], posterior.mean, posterior.covariance()
    variance = np.einsum("nm,nm->n", factor.H, factor.H @ S) + factor.extra_variance
    value = factor.potential.expected_log(factor.H @ m + factor.offset, variance).value.sum()
    return value - 0.5 * (m @ m + np.trace(S) - len(m) - np.linalg.slogdet(S)[1])
