"""Modes by products, and Laplace approximations with structured covariances, against dense ones."""

import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.inference.estimated import is_quicker_by_products
from latlin.inference.evidence.gradient import evidence_gradient


def text(count, dim, seed=0, filled=12, sites=potentials.Logit):
    """Rows like counts of words, and labels."""
    rng = np.random.default_rng(seed)
    rows = sparse.random_array((count, dim), density=filled / dim, random_state=rng, format="csr")
    w = 2.0 * rng.standard_normal(dim)
    labels = rng.random(count) < 1.0 / (1.0 + np.exp(-rows @ w))
    return LatentLinearModel([GaussianFactor(0.1, np.linspace(0.5, 2.0, dim)), SiteFactor(rows, sites(labels))])


def dense(model):
    (gaussian,), (sites,) = model.gaussians, model.sites
    return LatentLinearModel([gaussian, SiteFactor(sites.H.toarray(), sites.potential)])


def test_large_sparse_modes_are_those_of_newton():
    model = text(700, 620)
    assert is_quicker_by_products(model)
    assert not is_quicker_by_products(dense(model))
    ours, theirs = infer(model, engines.MAP(tol=1e-9)), infer(dense(model), engines.MAP(tol=1e-9))
    assert ours.converged
    assert "conjugate gradients" in ours.message
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-7)
    again = infer(model, engines.MAP(tol=1e-6), start=ours)
    assert again.n_iter <= 2


def test_small_models_and_those_with_kinks_go_another_way():
    assert not is_quicker_by_products(text(100, 400))
    assert not is_quicker_by_products(text(700, 620, sites=lambda y: potentials.Laplace(y.astype(float))))


def test_a_diagonal_laplace_approximation():
    model = text(60, 30, filled=5)
    post, full = infer(model, engines.Laplace(covariance="diagonal", tol=1e-9)), infer(model, "laplace")
    precision = np.linalg.inv(full.covariance())
    np.testing.assert_allclose(post.mean, full.mean, atol=1e-6)
    np.testing.assert_allclose(post.variance, 1.0 / np.diagonal(precision), rtol=1e-6)
    # log p(w*) + ½ Σ log 2π/P_dd
    expected = full.log_evidence + 0.5 * (np.linalg.slogdet(precision)[1] - np.log(np.diagonal(precision)).sum())
    np.testing.assert_allclose(post.log_evidence, expected, rtol=1e-9)
    assert post.log_evidence < full.log_evidence
    assert post.evidence_kind == "approximation"
    with pytest.raises(ValueError, match="does not say how its evidence depends"):
        evidence_gradient(post)


def test_a_low_rank_laplace_approximation_lies_between():
    model = text(60, 30, filled=5)
    diagonal = infer(model, engines.Laplace(covariance="diagonal"))
    low, full = infer(model, engines.Laplace(covariance="low-rank", rank=5)), infer(model, "laplace")
    assert diagonal.log_evidence < low.log_evidence < full.log_evidence + 1e-9
    np.testing.assert_allclose(low.mean, full.mean, atol=1e-4)


def test_a_sparse_laplace_approximation_is_the_full_one():
    model = text(60, 30, filled=3)
    ours, theirs = infer(model, engines.Laplace(covariance="sparse", tol=1e-9)), infer(model, engines.Laplace(tol=1e-9))
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-9)
    assert "the precision is sparse" in ours.message


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="covariance must be one of"):
        engines.Laplace(covariance="chevron")
    with pytest.raises(ValueError, match="rank goes with"):
        engines.Laplace(covariance="diagonal", rank=3)
    with pytest.raises(ValueError, match="rank goes with"):
        engines.Laplace(covariance="low-rank")
    free = LatentLinearModel([SiteFactor(np.eye(2), potentials.Logistic([0.0, 1.0], 1.0))])
    with pytest.raises(ValueError, match="GaussianFactor on every coordinate"):
        infer(free, engines.Laplace(covariance="diagonal"))
    with pytest.raises(ValueError, match="have a kink"):
        infer(text(20, 10, filled=3, sites=lambda y: potentials.Laplace(y.astype(float))), "laplace")
