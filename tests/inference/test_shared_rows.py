"""Models that differ in their prior or potential alone share what their rows decide, and answer as fresh ones do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.inference.exact import noise_slope

N, GROUPS = 60, 8


def _rows(rng: np.random.Generator) -> sparse.csr_array:
    labels = sparse.csr_array((np.ones(N), rng.integers(GROUPS, size=N), np.arange(N + 1)), shape=(N, GROUPS))
    covariates = np.column_stack([np.ones(N), rng.standard_normal(N)])
    return sparse.csr_array(sparse.hstack([sparse.csr_array(covariates), labels], format="csr"))


def _precision(scale: float) -> sparse.csr_array:
    return sparse.csr_array(sparse.diags_array(np.r_[0.01, 0.04, np.full(GROUPS, scale**-2.0)]))


def _factor(scale: float) -> GaussianFactor:
    Q = _precision(scale)
    return GaussianFactor(np.linspace(-1, 1, GROUPS + 2), precision=Q, log_det=float(np.log(Q.diagonal()).sum()))


def _pairs(potential, level=0.0, constrained=False):
    """The same models twice: with factors made anew, and with those of the first one."""
    rng = np.random.default_rng(3)
    rows, weight = _rows(rng), rng.uniform(0.5, 2.0, N)
    y = potential(rng, level)
    row = np.r_[0.0, 0.0, np.ones(GROUPS)]
    constraints = [Constraint(row, 0.5)] if constrained else []
    first = None
    for scale, noise in ((0.7, 0.4), (1.9, 0.9), (0.3, 0.05)):
        own = potentials.Gaussian(y, noise) if np.any(y != np.round(y)) else potentials.Logit(y)
        fresh = LatentLinearModel([_factor(scale), SiteFactor(rows, own, weight, 0.3)], constraints)
        if first is None:
            first = fresh
        prior = first.gaussians[0].with_precision(sparse.csc_array(_precision(scale)), _factor(scale).log_det)
        yield fresh, first.among([prior, first.sites[0].with_potential(own)]), noise


def _normal(rng, level):
    return level + rng.standard_normal(N)


def _binary(rng, level):
    return np.where(rng.random(N) < 0.4, 1.0, -1.0)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep"])
def test_shared_rows_change_no_digit(engine, constrained):
    for fresh, shared, _ in _pairs(_binary, constrained=constrained):
        ours, theirs = infer(shared, engine), infer(fresh, engine)
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-10)
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-10)
        np.testing.assert_allclose(ours.variance, theirs.variance, atol=1e-10)


@pytest.mark.parametrize("level", [0.0, 1e6])
def test_sums_over_normal_rows_are_the_closed_form(level):
    """A response far from zero leaves its digits to the noise: the sums are about a point near the mean."""
    for fresh, shared, noise in _pairs(_normal, level):
        found = infer(shared, "exact")
        dense = _by_hand(fresh, noise)
        assert found.log_evidence == pytest.approx(dense[2], rel=1e-9)
        np.testing.assert_allclose(found.mean, dense[0], rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(found.covariance(), dense[1], rtol=1e-7, atol=1e-9)


def _by_hand(model, noise):
    """y ~ N(o + Hμ, HQ⁻¹Hᵀ + σ²W⁻¹), and what a weight adds to a density: (w − 1) log N's constant, −½ log w."""
    (site,), (prior,) = model.sites, model.gaussians
    H, w, y = site.H.toarray(), site.weight, site.potential.loc - 0.3
    Q = prior.precision.toarray()
    P = Q + H.T @ (H * w[:, None]) / noise**2
    mean = np.linalg.solve(P, Q @ prior.mean + H.T @ (w * y) / noise**2)
    # log p at the mean + ½ log det(2πP⁻¹)
    r, d = y - H @ mean, mean - prior.mean
    top = 0.5 * np.linalg.slogdet(Q)[1] - 0.5 * len(d) * np.log(2 * np.pi) - 0.5 * d @ Q @ d
    top += float(np.sum(w * (-0.5 * np.log(2 * np.pi * noise**2) - 0.5 * r**2 / noise**2)))
    evidence = top + 0.5 * (len(d) * np.log(2 * np.pi) - np.linalg.slogdet(P)[1])
    return mean, np.linalg.inv(P), evidence


@pytest.mark.parametrize("constrained", [False, True])
def test_sums_over_normal_rows_under_constraints_and_their_slope(constrained):
    for fresh, shared, noise in _pairs(_normal, constrained=constrained):
        found, other = infer(shared, "exact"), infer(fresh, "gkl")
        assert found.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
        np.testing.assert_allclose(found.mean, other.mean, atol=1e-9)
        np.testing.assert_allclose(found.sites.gamma, other.sites.gamma, rtol=1e-9)
        np.testing.assert_allclose(found.sites.nu, other.sites.nu, atol=1e-7)
        step = 1e-5 * noise
        ends = []
        for moved in (noise + step, noise - step):
            potential = potentials.Gaussian(shared.sites[0].potential.loc, moved)
            factors = [*shared.gaussians, shared.sites[0].with_potential(potential)]
            ends.append(infer(shared.among(factors), "exact").log_evidence)
        assert noise_slope(found) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-5)


def test_other_responses_on_the_same_rows_have_sums_of_their_own():
    _, shared, noise = next(_pairs(_normal))
    first = infer(shared, "exact")
    other = potentials.Gaussian(shared.sites[0].potential.loc + 1.0, noise)
    moved = infer(shared.among([*shared.gaussians, shared.sites[0].with_potential(other)]), "exact")
    assert np.abs(moved.mean - first.mean).max() > 0.5


def test_a_precision_of_another_pattern_is_checked_as_a_new_one():
    factor = _factor(0.7)
    skewed = _precision(0.7).tolil()
    skewed[0, 3] = 0.5
    with pytest.raises(ValueError, match="symmetric"):
        factor.with_precision(sparse.csc_array(skewed), 0.0)
    with pytest.raises(ValueError, match="finite"):
        factor.with_precision(sparse.csc_array(_precision(0.7) * np.nan), 0.0)
