"""Low-rank updates of a design's posterior: equal to refits, honest about what they leave."""

import numpy as np
import pytest

from latlin import engines, infer, potentials
from latlin.densities.gaussian import DenseCovariance, Gaussian
from latlin.design import SequentialDesign, finite_differences
from latlin.design.updates import Measured, Priors, TrackedGaussian
from latlin.inference.model import LatentLinearModel

NOISE = 0.01
SHAPE = (6, 6)


def designed(slack=None, count=12, tol=1e-6, seed=0):
    filters = [finite_differences(SHAPE), np.eye(36)]
    priors = [potentials.Laplace(scale=0.1), potentials.Laplace(scale=0.5)]
    rng = np.random.default_rng(seed)
    image = np.outer(np.arange(6) > 2, np.ones(6)).ravel() - 0.3
    design = SequentialDesign(filters, priors, NOISE, engine=engines.GaussianKL(tol=tol), slack=slack)
    M = rng.standard_normal((count, 36)) / 6.0
    return design.observe(M, M @ image + np.sqrt(NOISE) * rng.standard_normal(count)), image, rng


def tracked(design):
    fitted = infer(design.model, "gkl")
    priors = Priors.of(LatentLinearModel(design._priors))
    return TrackedGaussian.at(
        priors, Measured.of(design.measurements, design.observations, NOISE), fitted.sites
    ), fitted


def test_what_is_tracked_is_the_fitted_posterior():
    design, _, _ = designed()
    now, fitted = tracked(design)
    np.testing.assert_allclose(now.mean, fitted.mean, atol=1e-9)
    np.testing.assert_allclose(now.covariance.dense(), fitted.covariance(), atol=1e-9)
    assert now.bound == pytest.approx(fitted.log_evidence, abs=1e-8)
    assert now.mean_left < 1e-10
    assert now.covariance_left < 1e-8


def test_appended_measurements_equal_a_factorisation_with_the_same_stand_ins():
    design, image, rng = designed()
    now, _ = tracked(design)
    for _ in range(5):
        rows = rng.standard_normal((3, 36))
        now = now.append(rows, rows @ image)
    measured = Measured.of(now.measured.rows * np.sqrt(NOISE), now.measured.values * np.sqrt(NOISE), NOISE)
    again = TrackedGaussian.at(now.priors, measured, now.parameters)
    np.testing.assert_allclose(now.mean, again.mean, atol=1e-8)
    np.testing.assert_allclose(now.covariance.dense(), again.covariance.dense(), atol=1e-8)
    np.testing.assert_allclose(now.variances, again.variances, atol=1e-8)
    assert now.covariance.log_det == pytest.approx(again.covariance.log_det, abs=1e-8)
    assert now.bound == pytest.approx(again.bound, abs=1e-8)
    np.testing.assert_allclose(now.measured.gram[np.triu_indices(36)], measured.gram[np.triu_indices(36)], atol=1e-8)


def test_what_is_left_is_what_a_refit_gains():
    design, image, rng = designed()
    now, _ = tracked(design)
    rows = 0.1 * rng.standard_normal((2, 36))
    design.observe(rows, rows @ image)
    now = now.append(rows, rows @ image)
    best = infer(design.model, "gkl").log_evidence
    left = now.mean_left + now.covariance_left
    assert now.bound < best
    assert left == pytest.approx(best - now.bound, rel=0.3)
    assert now.moved(1.0).bound > now.bound
    assert best - now.renewed(1.0).bound < 0.3 * (best - now.bound)


@pytest.mark.parametrize("slack", [1e-9, 0.1, 1.0])
def test_updated_posteriors_are_refits_up_to_the_slack(slack):
    design, image, rng = designed(slack)
    design.posterior  # noqa: B018
    for _ in range(4):
        rows = design.suggest(3)
        design.observe(rows, rows @ image + np.sqrt(NOISE) * rng.standard_normal(3))
        updated, refit = design.posterior, infer(design.model, "gkl")
        # what a few renewals do not reach is fitted
        assert "low rank" in updated.message or slack < 1e-6
        assert refit.log_evidence - 1.5 * slack - 1e-8 <= updated.log_evidence <= refit.log_evidence + 1e-8
        if slack < 1e-6:
            np.testing.assert_allclose(updated.mean, refit.mean, atol=1e-4)
            np.testing.assert_allclose(updated.variance, refit.variance, rtol=1e-3)
    assert design.reconstruction is updated.mean


def test_larger_slack_renews_less_often():
    renewals = {}
    for slack in (0.01, 2.0):
        design, image, _ = designed(slack)
        design.posterior  # noqa: B018
        renewals[slack] = 0
        for _ in range(4):
            rows = design.suggest(3)
            renewals[slack] += design.observe(rows, rows @ image).posterior.n_iter
    assert renewals[2.0] < renewals[0.01]


def test_a_dense_covariance_answers_as_its_matrix():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 5))
    S = root @ root.T
    upper = np.asfortranarray(np.triu(S))
    density = Gaussian(np.arange(4.0), DenseCovariance(upper, float(np.linalg.slogdet(S)[1])))
    np.testing.assert_allclose(density.covariance(), S)
    np.testing.assert_allclose(density.variance, np.diag(S))
    rows = rng.standard_normal((3, 4))
    np.testing.assert_allclose(density.project(rows).variance, np.diag(rows @ S @ rows.T))
    at = rng.standard_normal(4)
    for v in (at, rows.T):
        np.testing.assert_allclose(density.structure.times(v), S @ v)
    wanted = -0.5 * (at - density.mean) @ np.linalg.solve(S, at - density.mean) - density.entropy + 2.0
    assert density.logpdf(at) == pytest.approx(wanted)
    draws = density.sample(40_000, 0)
    np.testing.assert_allclose(np.cov(draws.T), S, atol=0.15)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"slack": -1.0}, "slack"),
        ({"slack": 1.0, "engine": "lvb"}, "slack is for full Gaussian KL"),
        ({"slack": 1.0, "noise_variance": None, "likelihood": potentials.Logit(1)}, "slack is for full"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, match):
    with pytest.raises(ValueError, match=match):
        SequentialDesign(None, potentials.Laplace(), **{"noise_variance": 1.0, "dim": 3} | arguments)
