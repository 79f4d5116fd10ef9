"""From theory, on many problems: local bound ≤ KL bound of its Gaussian ≤ Gaussian KL ≤ log Z; mean field ≤ log Z."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.test_brute_force import PROBLEMS
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import ExpectationPropagation
from latlin.potentials.generalised_normal import GeneralisedNormal
from latlin.potentials.laplace import Laplace
from latlin.potentials.logistic import Logistic
from latlin.potentials.logit import Logit
from latlin.potentials.student_t import Cauchy, StudentT
from reference import brute_force, log_joint

SLACK = 1e-8
FAMILIES = {
    "logit": lambda rng, n: Logit(rng.integers(0, 2, n)),
    "laplace": lambda rng, n: Laplace(3 * rng.standard_normal(n), np.exp(rng.normal())),
    "logistic": lambda rng, n: Logistic(3 * rng.standard_normal(n), np.exp(rng.normal())),
    "student t": lambda rng, n: StudentT(np.exp(0.5 + rng.normal()), 5 * rng.standard_normal(n), np.exp(rng.normal())),
    "cauchy": lambda rng, n: Cauchy(5 * rng.standard_normal(n), np.exp(rng.normal())),
    "generalised": lambda rng, n: GeneralisedNormal(rng.uniform(0.4, 2), 3 * rng.standard_normal(n), 0.7),
}


def problem(family, seed, dim=None):
    """A random model; the seed gives its size and its numbers."""
    rng = np.random.default_rng(seed)
    dim = dim or int(rng.integers(1, 5))
    n = int(rng.integers(1, 12))
    sites = SiteFactor(rng.standard_normal((n, dim)), FAMILIES[family](rng, n))
    return LatentLinearModel([GaussianFactor(cov=np.exp(rng.normal()), dim=dim), sites])


def check_rungs(model):
    """Local bound, its KL bound and the Gaussian KL optimum, in order; returns the last."""
    local, best = infer(model, "lvb"), infer(model, "gkl")
    assert local.log_evidence <= local.kl_bound() + SLACK
    assert local.kl_bound() <= best.log_evidence + SLACK
    return best


@settings(max_examples=120, derandomize=True, deadline=None)
@given(family=st.sampled_from(sorted(FAMILIES)), seed=st.integers(0, 2**32 - 1))
def test_random_problems(family, seed):
    model = problem(family, seed)
    best = check_rungs(model)
    if model.dim == 1:
        line = np.linspace(-14, 14, 40001)[:, None] * np.sqrt(model.gaussians[0].cov)
        logs = log_joint(model, line)
        log_z = logs.max() + np.log(np.exp(logs - logs.max()).sum() * (line[1, 0] - line[0, 0]))
        assert best.log_evidence <= log_z + SLACK


@pytest.mark.parametrize("name", [n for n, m in PROBLEMS.items() if m.sites[0].potential.super_gaussian])
def test_every_brute_force_problem(name):
    check_rungs(PROBLEMS[name])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_below_brute_force_in_two_dimensions(family, seed):
    model = problem(family, seed, dim=2)
    best = check_rungs(model)
    log_z, _, _ = brute_force(model, best, count=801)
    assert best.log_evidence <= log_z + SLACK


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_field_below_brute_force(family):
    rng = np.random.default_rng(7)
    cov = np.array([[1.0, 0.7], [0.7, 2.0]])
    model = LatentLinearModel([GaussianFactor(0.3, cov), SiteFactor(None, FAMILIES[family](rng, 2))])
    best = check_rungs(model)
    log_z, _, _ = brute_force(model, best, count=801)
    post = infer(model, "mean-field")
    assert post.log_evidence <= log_z + SLACK
    assert best.log_evidence <= log_z + SLACK


@pytest.mark.parametrize("family", ["logit", "logistic"])
def test_expectation_propagation_is_closest_for_smooth_log_concave_sites(family):
    model = problem(family, 3, dim=2)
    best = check_rungs(model)
    log_z, mean, _ = brute_force(model, best, count=801)
    post = infer(model, ExpectationPropagation())
    assert abs(post.log_evidence - log_z) < log_z - best.log_evidence
    assert np.abs(post.mean - mean).max() < 0.02 * np.sqrt(model.gaussians[0].cov)


@pytest.mark.parametrize("seed", [121, 135, 202])
def test_gaussian_kl_needs_the_start_at_the_local_bound(seed):
    # several modes: from the mode that Newton's method finds, the ascent ends below the local bound's own Gaussian
    rng = np.random.default_rng(seed)
    dim, n = int(rng.integers(1, 4)), int(rng.integers(2, 8))
    sites = SiteFactor(rng.standard_normal((n, dim)), StudentT(1.0, 8 * rng.standard_normal(n), 0.2))
    check_rungs(LatentLinearModel([GaussianFactor(cov=25.0, dim=dim), sites]))
