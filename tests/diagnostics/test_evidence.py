"""Bounds, evidence and moments from weights, on problems whose answer is known."""

import numpy as np
import pytest
from scipy.stats import norm, t

from latlin.diagnostics.weights import (
    corrected_moments,
    defended_evidence,
    effective_size,
    largest_moves,
    smooth_log_weights,
    summarise_weights,
)

LOG_Z = 1.7
COUNTS = (1000, 1000)


def normal_by_t(scale=1.0, shift=0.0, seed=0):
    """p = Z·N(0, 1), drawn from q = N(shift, scale²) and from a wide t."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([shift + scale * rng.normal(size=COUNTS[0]), 3.0 * rng.standard_t(3, size=COUNTS[1])])
    log_components = np.stack([norm.logpdf(x, shift, scale), t.logpdf(x, 3, scale=3.0)], axis=1)
    return x, LOG_Z + norm.logpdf(x), log_components


def test_effective_size_counts_equal_weights():
    assert effective_size(np.array([-5.0, -5.0, -np.inf])) == pytest.approx(2.0)


def test_bounds_lie_on_either_side_and_close_on_exact_weights():
    logs = np.random.default_rng(0).normal(size=4000) - 0.5
    found = summarise_weights(logs)
    # log-normal weights: log Z = 0, ½ log⟨w²⟩ = ½
    assert found.lower_bound == pytest.approx(0.0, abs=0.1)
    assert found.upper_bound == pytest.approx(0.5, abs=0.2)
    assert found.lower_bound <= found.upper_bound
    exact = summarise_weights(np.full(10, 2.5))
    assert exact.lower_bound == pytest.approx(2.5)
    assert exact.upper_bound == pytest.approx(2.5)


def test_heavy_weights_make_the_upper_bound_unreliable():
    u = (np.arange(4000) + 0.5) / 4000
    assert not summarise_weights(-0.6 * np.log1p(-u)).upper_bound_reliable
    assert summarise_weights(-0.1 * np.log1p(-u)).upper_bound_reliable


def test_evidence_of_an_exact_component_has_no_error():
    _, log_p, log_components = normal_by_t()
    found = defended_evidence(log_p, log_components, np.array([0.5, 0.5]))
    assert found.log_evidence == pytest.approx(LOG_Z, abs=1e-10)
    assert found.standard_error < 1e-10


@pytest.mark.parametrize(("scale", "shift"), [(1 / 3, 0.0), (3.0, 0.0), (1.0, 5.0), (1.2, 0.3)])
def test_evidence_error_is_honest(scale, shift):
    """Forty runs: the errors in units of the standard error have a spread near one."""
    z = []
    for seed in range(40):
        _, log_p, log_components = normal_by_t(scale, shift, seed)
        found = defended_evidence(log_p, log_components, np.array([0.5, 0.5]))
        z.append((found.log_evidence - LOG_Z) / found.standard_error)
    assert np.sqrt(np.mean(np.square(z))) == pytest.approx(1.0, abs=0.4)


def test_nothing_found_is_said():
    found = defended_evidence(np.full(30, -np.inf), np.zeros((30, 1)), np.ones(1))
    assert found.log_evidence == -np.inf
    assert found.ess == 0.0


@pytest.mark.parametrize(("scale", "shift"), [(1 / 3, 0.0), (3.0, 0.0), (1.0, 2.0), (1.0, 0.0)])
def test_moments_are_corrected_within_their_errors(scale, shift):
    x, log_p, log_components = normal_by_t(scale, shift, seed=3)
    found = defended_evidence(log_p, log_components, np.array([0.5, 0.5]))
    blocks = ((slice(i, i + 500), x[i : i + 500, None]) for i in range(0, 2000, 500))
    own = np.array([shift]), np.array([scale**2])
    moments = corrected_moments(blocks, found.weights, found.reference, *own, np.array([[scale**2]]))
    assert abs(moments.mean[0]) <= 4.0 * moments.mean_error[0] + 1e-10
    assert abs(moments.variance[0] - 1.0) <= 4.0 * moments.variance_error[0] + 1e-10
    assert moments.mean_error[0] < 0.1
    assert moments.covariance[0, 0] == pytest.approx(moments.variance[0])


def test_corrected_covariance_is_proper():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 20))
    weights = rng.dirichlet(np.full(60, 0.3))
    eye = np.ones(20)
    moments = corrected_moments(iter([(slice(0, 60), x)]), weights, np.full(60, 1 / 60), 0 * eye, eye, np.eye(20))
    assert np.linalg.eigvalsh(moments.covariance).min() > -1e-10
    np.testing.assert_allclose(np.diagonal(moments.covariance), moments.variance)


@pytest.mark.parametrize(
    ("scale", "shift", "mean", "log_variance"), [(1.0, 5.0, 5.0, 0.0), (3.0, 0.0, 0.0, 8.0), (1 / 3, 0.0, 0.0, 8 / 9)]
)
def test_response_points_where_q_is_wrong(scale, shift, mean, log_variance):
    """cov_q(w, log p/q) of normals: −shift·scale², and (scale² − 1)·scale² for the squares, in units of q."""
    x = shift + scale * np.random.default_rng(0).normal(size=20000)
    logs = norm.logpdf(x) - norm.logpdf(x, shift, scale)
    found = largest_moves(
        iter([(slice(0, 20000), x[:, None])]), logs, np.array([shift]), np.array([scale**2]), margin=0.0
    )
    assert found.mean == pytest.approx(mean, abs=0.2)
    assert found.log_variance == pytest.approx(log_variance, abs=0.3)


def test_weights_without_large_ones_have_no_tail() -> None:
    # a fifth of the weights has the tail of k = 1, cut off at three times the others: no draw counts for many
    excess = np.random.default_rng(0).pareto(1.0, 4000) * (np.arange(4000) % 5 == 0)
    log_p = np.log(np.minimum(1.0 + 0.02 * excess, 3.0))
    found = defended_evidence(log_p, np.zeros((4000, 1)), np.ones(1))
    assert smooth_log_weights(log_p).k_hat > 0.7
    assert found.k_hat == 0.0
    far = defended_evidence(np.log(1.0 + 0.02 * excess), np.zeros((4000, 1)), np.ones(1))
    assert far.k_hat > 0.7
