"""Every family of observations in small models: each engine that applies against integrals on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.potentials import Potential

X = np.array([[1.0, 0.2], [1.0, -0.7], [1.0, 1.1], [1.0, 0.4]])
COUNTS, TIMES = [0, 3, 1, 2], [0.4, 1.3, 2.0, 0.7]
FAMILIES: dict[str, Potential] = {
    "binomial": potentials.Binomial(COUNTS, [4, 5, 3, 6]),
    "binomial_probit": potentials.Binomial(COUNTS, [4, 5, 3, 6], "probit"),
    "binomial_cloglog": potentials.Binomial(COUNTS, [4, 5, 3, 6], "cloglog"),
    "beta_binomial": potentials.BetaBinomial(COUNTS, [4, 5, 3, 6], 3.0),
    "negative_binomial": potentials.NegativeBinomial(COUNTS, 0.5),
    "negative_binomial_linear": potentials.NegativeBinomial(COUNTS, 0.5, "linear"),
    "generalised_poisson": potentials.GeneralisedPoisson(COUNTS, 0.3),
    "zero_inflated": potentials.ZeroInflated(potentials.Poisson(COUNTS), 0.2),
    "hurdle": potentials.Hurdle(potentials.NegativeBinomial(COUNTS, 0.5), 0.2),
    "gamma": potentials.Gamma(TIMES, 2.0),
    "inverse_gaussian": potentials.InverseGaussian(TIMES, 2.0),
    "log_normal": potentials.LogNormal(TIMES, 0.7),
    "tweedie": potentials.Tweedie([0.0, 1.3, 2.0, 0.7], 1.5, 1.0),
    "beta": potentials.Beta([0.2, 0.6, 0.5, 0.9], 4.0),
    "weibull": potentials.Weibull(TIMES, [1, 0, 2, 3], 1.5, [1.0, 1.0, 1.0, 1.1]),
    "exponential": potentials.Exponential(TIMES, [1, 0, 1, 0]),
    "log_logistic": potentials.LogLogistic(TIMES, [1, 0, 2, 1], 1.5),
    "asymmetric_laplace": potentials.AsymmetricLaplace(0.8, TIMES, 0.3),
    "huber": potentials.Huber(TIMES, 0.5),
    "truncated": potentials.Truncated(potentials.Gaussian(TIMES, 0.8), low=0.0),
}
EACH = pytest.mark.parametrize("name", FAMILIES)
GRID = np.linspace(-8.0, 8.0, 801)


def model_of(name: str) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(mean=0.0, cov=1.0, dim=2), SiteFactor(X, FAMILIES[name])])


def on_a_grid(name: str) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, mean and covariance, by the trapezoid rule (which converges exponentially for smooth densities)."""
    w = np.stack([part.ravel() for part in np.meshgrid(GRID, GRID, indexing="ij")], axis=-1)
    log_p = FAMILIES[name].log_density(w @ X.T).sum(axis=-1) - 0.5 * (w * w).sum(axis=-1) - np.log(2 * np.pi)
    log_z = float(logsumexp(log_p)) + 2 * np.log(GRID[1] - GRID[0])
    p = np.exp(log_p - logsumexp(log_p))
    mean = p @ w
    return log_z, mean, (w - mean).T @ (p[:, None] * (w - mean))


@EACH
def test_posteriors_against_integrals(name: str):
    log_z, mean, cov = on_a_grid(name)
    sd = np.sqrt(np.diag(cov))
    block = FAMILIES[name]
    ep = infer(model_of(name), "ep")
    assert ep.converged
    # several sites: an approximation, the better the nearer they are to log-concave
    slack = 1.0 if block.log_concave else 3.0
    assert abs(ep.log_evidence - log_z) < 0.02 * slack
    assert np.all(np.abs(ep.mean - mean) < 0.03 * slack * sd)
    np.testing.assert_allclose(ep.covariance(), cov, atol=0.05 * slack * np.max(np.diag(cov)))
    gkl = infer(model_of(name), "gkl")
    assert gkl.converged
    assert gkl.evidence_kind == ("exact" if block.gaussian else "lower bound")
    assert log_z - 0.1 * slack < gkl.log_evidence < log_z + 1e-7
    assert np.all(np.abs(gkl.mean - mean) < 0.1 * slack * sd)
    if block.super_gaussian:
        local = infer(model_of(name), "lvb")
        assert log_z - 1.0 < local.log_evidence < gkl.log_evidence + 1e-7


@EACH
def test_independent_coordinates_give_a_lower_bound(name: str):
    log_z, mean, cov = on_a_grid(name)
    found = infer(model_of(name), "mean-field")
    assert found.converged
    assert found.evidence_kind == "lower bound"
    assert log_z - 1.0 < found.log_evidence < log_z + 1e-7
    assert np.all(np.abs(found.mean - mean) < 0.3 * np.sqrt(np.diag(cov)))


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "ai-kl") for name in ("binomial_cloglog", "gamma", "weibull")]
    + [(name, "t-kl") for name in ("binomial", "log_logistic")],
)
def test_wider_families_are_nearer_to_the_evidence(name: str, engine: str):
    """Skewed and heavy-tailed q: between the best Gaussian and log Z."""
    log_z, mean, cov = on_a_grid(name)
    found, gaussian = infer(model_of(name), engine), infer(model_of(name), "gkl")
    assert gaussian.log_evidence - 1e-4 < found.log_evidence < log_z + found.bound_error + 1e-6
    assert np.all(np.abs(found.mean - mean) < 0.1 * np.sqrt(np.diag(cov)))


@EACH
def test_expectation_propagation_is_exact_for_one_site(name: str):
    for site in range(4):
        block = FAMILIES[name].select([site])
        w = np.linspace(-9.0, 9.0, 40001)
        p = np.exp(block.log_density(w[:, None])[:, 0] - 0.5 * w * w) / np.sqrt(2 * np.pi)
        z = np.trapezoid(p, w)
        mean = np.trapezoid(p * w, w) / z
        ep = infer(LatentLinearModel([GaussianFactor(dim=1), SiteFactor(np.ones((1, 1)), block)]), "ep")
        assert ep.log_evidence == pytest.approx(np.log(z), abs=1e-7)
        assert ep.mean[0] == pytest.approx(mean, abs=1e-6)
        assert ep.variance[0] == pytest.approx(np.trapezoid(p * (w - mean) ** 2, w) / z, abs=1e-6)


@EACH
def test_modes_and_curvatures(name: str):
    block = FAMILIES[name]
    mode = infer(model_of(name), "map").mean
    steps = 1e-3 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    w = mode + steps
    log_p = block.log_density(w @ X.T).sum(axis=-1) - 0.5 * (w * w).sum(axis=-1)
    assert np.all(log_p[0] >= log_p[1:] - 1e-12)
    if block.smooth:
        laplace = infer(model_of(name), "laplace")
        np.testing.assert_allclose(laplace.mean, mode, atol=1e-5)
        bend = block.derivatives(X @ mode).second
        precision = np.eye(2) - (X.T * bend) @ X
        np.testing.assert_allclose(np.linalg.inv(laplace.covariance()), precision, rtol=1e-3)


def test_weights_count_repeated_rows():
    for name, block in FAMILIES.items():
        weighted = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X, block, weight=[2.0, 1.0, 0.0, 1.0])])
        repeated = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X[[0, 0, 1, 3]], block.select([0, 0, 1, 3]))])
        one, two = infer(weighted, "gkl"), infer(repeated, "gkl")
        assert one.log_evidence == pytest.approx(two.log_evidence, abs=1e-6), name


def test_a_box_is_for_expectation_propagation():
    box = potentials.Interval([-0.5, -1.0, 0.0, -np.inf], [1.0, 2.0, np.inf, 0.5])
    model = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X, box)])
    w = np.random.default_rng(0).standard_normal((400_000, 2))
    inside = np.isfinite(box.log_density(w @ X.T).sum(axis=-1))
    ep = infer(model, "ep")
    assert ep.log_evidence == pytest.approx(np.log(inside.mean()), abs=0.05)
    np.testing.assert_allclose(ep.mean, w[inside].mean(axis=0), atol=0.05)
    with pytest.raises(ValueError, match="box has no expected log"):
        infer(model, "gkl")


@pytest.mark.parametrize("prior", [potentials.SpikeAndSlab(0.3, 2.0, 0.2), potentials.Horseshoe(0.0, 0.5)])
def test_sparse_priors_on_the_line(prior: Potential):
    """One coefficient, two Gaussian observations: integrals in one dimension."""
    H, y = np.array([[1.0], [0.8]]), np.array([0.9, 0.4])
    model = LatentLinearModel([SiteFactor(None, prior), GaussianFactor(mean=y, cov=0.25, H=H)])
    w = np.concatenate([-np.geomspace(1e-12, 10, 20001)[::-1], np.geomspace(1e-12, 10, 20001)])
    log_p = prior.log_density(w) - 2 * ((y - np.outer(w, H)) ** 2).sum(axis=-1) - np.log(2 * np.pi * 0.25)
    z = np.trapezoid(np.exp(log_p), w)
    mean = np.trapezoid(w * np.exp(log_p), w) / z
    # a single site: expectation propagation is exact
    ep = infer(model, "ep")
    assert ep.log_evidence == pytest.approx(np.log(z), abs=1e-4)
    assert ep.mean[0] == pytest.approx(mean, abs=1e-4)
    assert infer(model, "gkl").log_evidence < np.log(z) + 1e-6


@pytest.mark.parametrize("H", [[[1.0, 1.0]], [[1.0, 1.0], [1.0, -0.5]]])
def test_a_box_with_measurements_needs_no_other_prior(H):
    """Ends on both sides of every coordinate: proper, whether or not the measurements determine all of them."""
    H = np.array(H)
    y = np.array([0.3, 0.1])[: len(H)]
    measured = GaussianFactor(mean=y, H=H, cov=0.1 * np.eye(len(H)))
    ep = infer(LatentLinearModel([SiteFactor(None, potentials.Interval([-1.0, -1.0], [1.0, 1.5])), measured]), "ep")
    assert ep.converged
    # the midpoint rule inside the box
    a, b = (low + (high - low) * (np.arange(400) + 0.5) / 400 for low, high in ((-1.0, 1.0), (-1.0, 1.5)))
    w = np.stack([part.ravel() for part in np.meshgrid(a, b, indexing="ij")], axis=-1)
    p = np.exp(-5.0 * np.sum((y - w @ H.T) ** 2, axis=1)) / (0.2 * np.pi) ** (0.5 * len(H))
    z = p.mean() * 2.0 * 2.5
    mean = p @ w / p.sum()
    sd = np.sqrt(p @ (w - mean) ** 2 / p.sum())
    assert ep.log_evidence == pytest.approx(np.log(z), abs=0.05)
    assert np.all(np.abs(ep.mean - mean) < 0.1 * sd)
    assert np.all(np.abs(np.sqrt(ep.variance) / sd - 1.0) < 0.1)
    if len(H) == 1:
        open_box = SiteFactor(np.array([[1.0, 0.0]]), potentials.Interval(-1.0, np.inf))
        with pytest.raises(ValueError, match="improper"):
            infer(LatentLinearModel([open_box, measured]), "ep")
