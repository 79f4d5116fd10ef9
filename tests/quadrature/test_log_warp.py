"""A process on log f: its moments against draws of the process, hard integrals, and measures known by their density."""

import numpy as np
import pytest
from scipy.special import expit

from latlin.quadrature import BayesianQuadrature, Gaussian, Reweighted, Uniform, integrate
from latlin.quadrature.bayesian import log_moments, peak_nodes
from latlin.quadrature.kernels import Box, Components, resolve_kernel
from latlin.quadrature.surrogate import Hyperparameters, condition, constant_basis


def surrogate(variance):
    points = np.array([[-1.5], [-0.4], [0.3], [1.2]])
    values = -2.0 * (points[:, 0] - 0.2) ** 2
    return condition(
        resolve_kernel("rbf"), constant_basis, points, values, Hyperparameters(np.array([1.0]), 1e-8, variance)
    )


@pytest.mark.parametrize("measure", [Box(1), Components(np.ones(1), np.zeros((1, 1)), np.eye(1)[None])])
def test_moments_are_those_of_draws_of_the_process(measure):
    process = surrogate(0.3)
    grid = np.linspace(-3.5, 3.5, 281)[:, None]
    weight = np.exp(measure.logpdf(grid)) * 0.025
    cov = process.covariance(grid, grid)
    values, axes = np.linalg.eigh(cov)
    white = np.random.default_rng(0).standard_normal((20_000, len(grid)))
    draws = process.mean(grid) + (white * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    integrals = np.exp(draws) @ weight
    found, _ = log_moments(process, peak_nodes(process, measure))
    assert found.mean == pytest.approx(integrals.mean(), rel=0.02)
    assert found.variance == pytest.approx(integrals.var(), rel=0.1)


@pytest.mark.parametrize("measure", [Box(3), Components(np.ones(1), np.zeros((1, 3)), np.eye(3)[None])])
def test_nodes_integrate(measure):
    points = measure.place(np.random.default_rng(0).uniform(size=(40, 4)))
    centre = np.array([0.5, -0.5, 1.0])

    def log_f(z):
        return -3.0 * np.sum((z - centre) ** 2, axis=1)

    process = condition(resolve_kernel("rbf"), constant_basis, points, log_f(points), Hyperparameters(np.full(3, 3.0)))
    nodes = peak_nodes(process, measure)
    inside = nodes.weights > 0.0
    found = nodes.weights[inside] @ np.exp(log_f(nodes.points[inside]))
    if isinstance(measure, Box):
        axis = np.linspace(-np.sqrt(3.0), np.sqrt(3.0), 4001)
        lines = [np.trapezoid(np.exp(-3.0 * (axis - c) ** 2), axis) / (2.0 * np.sqrt(3.0)) for c in centre]
        truth = np.prod(lines)
    else:
        # ∫ N(z|0, 1) exp(−3(z − c)²) = exp(−3c²/7)/√7
        truth = np.prod(np.exp(-3.0 * centre**2 / 7.0) / np.sqrt(7.0))
    assert found == pytest.approx(truth, rel=0.003)


def test_the_evidence_of_a_logistic_regression_in_four_dimensions():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((30, 4))
    y = np.where(rng.uniform(size=30) < expit(1.2 * x.sum(axis=1)), 1.0, -1.0)

    def log_likelihood(t):
        return -np.logaddexp(0.0, -(t @ x.T) * y).sum(axis=1)

    draws = np.random.default_rng(0).standard_normal((400_000, 4))
    logs = np.concatenate([log_likelihood(part) for part in np.split(draws, 40)])
    truth = np.mean(np.exp(logs - logs.max()))
    error = np.std(np.exp(logs - logs.max())) / np.sqrt(len(logs)) / truth
    bq = BayesianQuadrature(Gaussian(0.0, 1.0, dim=4), kernel="rbf", warp="log", hyperparameters="ml")
    found = bq.integrate(log_likelihood, 100, log=True, random_state=0)
    assert abs(found.log_evidence - np.log(truth) - logs.max()) < 0.02 + 3.0 * error
    assert found.log_evidence_sd < 0.05


def test_a_negative_integrand_is_refused():
    bq = BayesianQuadrature(Uniform(-1.0, 1.0), warp="log")
    with pytest.raises(ValueError, match="needs an integrand above zero"):
        bq.integrate(lambda x: x[:, 0], 10, random_state=0)


def test_a_measure_by_its_log_density():
    logistic = Reweighted(lambda x: -x[:, 0] - 2.0 * np.log1p(np.exp(-x[:, 0])), Gaussian(0.0, 6.0))
    assert integrate(lambda x: x[:, 0] ** 2, logistic, 40, random_state=0).mean == pytest.approx(
        np.pi**2 / 3.0, rel=0.01
    )
    found = integrate(lambda x: 0.0 * x[:, 0], logistic, 40, log=True, random_state=0)
    assert found.log_evidence == pytest.approx(0.0, abs=0.01)
    with pytest.raises(ValueError, match="no draws of its own"):
        logistic.sample(3)


def test_an_unknown_measure_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"any density serves by Reweighted\(log_density, proposal\)"):
        integrate(np.cos, "a normal", 10)
    with pytest.raises(ValueError, match="proposal must be a Gaussian"):
        Reweighted(np.cos, "a normal")
