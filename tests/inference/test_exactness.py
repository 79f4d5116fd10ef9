"""Gaussian sites make Laplace and full Gaussian KL exact: posterior and evidence in closed form."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from scipy.stats import multivariate_normal

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials.gaussian import Gaussian

rng = np.random.default_rng(1)


def closed_form(rows, y, noise, mean, cov):
    """Posterior mean, covariance and log evidence of y = rows w + noise."""
    s = rows @ cov @ rows.T + np.diag(noise**2)
    gain = cov @ rows.T @ np.linalg.inv(s)
    evidence = multivariate_normal(rows @ mean, s).logpdf(y)
    return mean + gain @ (y - rows @ mean), cov - gain @ rows @ cov, evidence


def random_covariance(dim):
    root = rng.standard_normal((dim, dim))
    return root @ root.T + 0.2 * np.eye(dim)


@pytest.mark.parametrize("engine", ["laplace", "gkl"])
@pytest.mark.parametrize(("n", "dim"), [(30, 4), (4, 4), (5, 12), (1, 1)])
@pytest.mark.parametrize("prior", ["scalar", "diagonal", "full"])
def test_gaussian_sites_are_exact(engine, n, dim, prior):
    rows, y, noise = rng.standard_normal((n, dim)), rng.standard_normal(n), rng.uniform(0.3, 2.0, n)
    mean = rng.standard_normal(dim)
    cov = {"scalar": 2.5, "diagonal": rng.uniform(0.5, 2, dim), "full": random_covariance(dim)}[prior]
    dense = cov * np.eye(dim) if prior != "full" else cov
    model = LatentLinearModel([GaussianFactor(mean, cov, dim=dim), SiteFactor(rows, Gaussian(y, noise))])
    post = infer(model, engine)
    exact_mean, exact_cov, evidence = closed_form(rows, y, noise, mean, dense)
    assert post.evidence_kind == "exact"
    assert post.converged
    assert post.log_evidence == pytest.approx(evidence, abs=1e-10 * (1 + abs(evidence)))
    np.testing.assert_allclose(post.mean, exact_mean, atol=1e-10)
    np.testing.assert_allclose(post.covariance(), exact_cov, atol=1e-10)
    np.testing.assert_allclose(post.variance, np.diag(exact_cov), atol=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse", "operator"])
@pytest.mark.parametrize("n", [3, 25])
def test_kinds_of_projections_agree(kind, n):
    rows = rng.standard_normal((n, 6)) * (rng.random((n, 6)) < 0.5)
    y = rng.standard_normal(n)
    H = {"dense": rows, "sparse": sparse.csr_array(rows), "operator": aslinearoperator(rows)}[kind]
    for cov in (0.7, random_covariance(6)):
        model = LatentLinearModel([GaussianFactor(0.3, cov, dim=6), SiteFactor(H, Gaussian(y, 0.5))])
        dense = cov * np.eye(6) if np.ndim(cov) == 0 else cov
        mean, covariance, evidence = closed_form(rows, y, np.full(n, 0.5), np.full(6, 0.3), dense)
        post = infer(model, "gkl")
        assert post.log_evidence == pytest.approx(evidence, abs=1e-9)
        np.testing.assert_allclose(post.mean, mean, atol=1e-10)
        np.testing.assert_allclose(
            post.project(H if kind != "operator" else rows).variance, np.diag(rows @ covariance @ rows.T), atol=1e-10
        )


@pytest.mark.parametrize("direct", [0, 1, 2])
@pytest.mark.parametrize("engine", ["laplace", "gkl"])
def test_several_gaussian_factors_and_measurements(direct, engine):
    """Any split of one linear-Gaussian model into factors gives the same answer."""
    dim = 3
    covs = [random_covariance(dim), 1.7, rng.uniform(0.5, 2, dim)]
    means = [rng.standard_normal(dim), 0.4, rng.standard_normal(dim)]
    factors = [GaussianFactor(means[i], covs[i], dim=dim) for i in range(direct)]
    rows, cov, y = rng.standard_normal((4, dim)), random_covariance(4), rng.standard_normal(4)
    sites, values = rng.standard_normal((5, dim)), rng.standard_normal(5)
    model = LatentLinearModel([*factors, GaussianFactor(y, cov, H=rows), SiteFactor(sites, Gaussian(values, 0.6))])
    post = infer(model, engine)
    # integrate exp(c + bᵀw − ½wᵀΛw) in closed form
    blocks = [
        (np.eye(dim), covs[i] * np.eye(dim) if np.ndim(covs[i]) < 2 else covs[i], means[i]) for i in range(direct)
    ]
    blocks += [(rows, cov, y), (sites, 0.36 * np.eye(5), values)]
    precision = sum(h.T @ np.linalg.inv(s) @ h for h, s, _ in blocks)
    linear = sum(h.T @ np.linalg.inv(s) @ np.broadcast_to(m, len(h)) for h, s, m in blocks)
    mean = np.linalg.solve(precision, linear)
    constant = sum(multivariate_normal(np.broadcast_to(m, len(h)), s).logpdf(h @ mean) for h, s, m in blocks)
    evidence = constant + 0.5 * (dim * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1])
    assert post.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(post.mean, mean, atol=1e-10)
    np.testing.assert_allclose(post.covariance(), np.linalg.inv(precision), atol=1e-10)


def test_no_sites_leave_the_prior():
    cov = random_covariance(3)
    post = infer(LatentLinearModel([GaussianFactor([1.0, 2.0, 3.0], cov)]), "gkl")
    assert post.evidence_kind == "exact"
    assert post.log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(post.covariance(), cov, atol=1e-12)
