"""Sites that are not log-concave: structured Gaussian KL starts from several places and keeps the best."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.engines import GaussianKL
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl import engine as gaussian_kl_engine
from latlin.inference.gaussian_kl.climber import structured_starts


def outliers(potential, seed=2):
    """Regression with a third of the responses far off."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((14, 4)), 3.0 * rng.standard_normal(4)
    y = x @ w + 0.2 * rng.standard_normal(14)
    wrong = rng.random(14) < 0.35
    y[wrong] += rng.normal(0.0, 15.0, wrong.sum())
    return LatentLinearModel([GaussianFactor(cov=9.0), SiteFactor(x, potential(y))])


def cauchy(y):
    return potentials.Cauchy(y, 0.2)


@pytest.mark.parametrize(
    "options", [{"covariance": "diagonal"}, {"covariance": "chevron", "rank": 2}, {"covariance": "low-rank", "rank": 1}]
)
def test_the_better_optimum_is_kept(options, monkeypatch):
    model, engine = outliers(cauchy), GaussianKL(**options, tol=1e-4)
    best = infer(model, engine).log_evidence
    for i in range(3):
        monkeypatch.setattr(gaussian_kl_engine, "structured_starts", lambda form, i=i: [structured_starts(form)[i]])
        alone = infer(model, engine).log_evidence
        assert alone <= best + 1e-6
        if i == 2:
            assert alone < best - 1.0, "the prior's mean leads to a poor optimum here"


def test_the_mode_is_one_and_local_bounds_have_their_moments():
    model = outliers(lambda y: potentials.StudentT(2.0, y, 0.2))
    mode, bound, usual = structured_starts(structured_form(model))
    form = structured_form(model)
    x = form.rows.times(mode.mean)
    slope = form.rows.transposed(form.sites.derivatives(x).first) - form.prior * mode.mean
    assert np.abs(slope).max() < 1e-2
    exact = infer(model, "lvb")
    np.testing.assert_allclose(form.weights(bound.mean), exact.mean, atol=1e-2)
    assert np.all(usual.mean == 0.0)
    assert all(np.all(np.isfinite(m.scale) & (m.scale > 0.0)) for m in (mode, bound, usual))


def test_one_start_is_enough_for_log_concave_sites():
    model = outliers(lambda y: potentials.Logit(y > 0.0))
    assert len(structured_starts(structured_form(model))) == 1


def test_a_kink_has_no_mode_and_a_mixture_no_local_bound():
    prior = GaussianFactor(cov=1.0, dim=3)
    kinked = LatentLinearModel([prior, SiteFactor(None, potentials.GeneralisedNormal(0.7))])
    assert len(structured_starts(structured_form(kinked))) == 2
    mixture = potentials.GaussianMixture([0.5, 0.5], [-3.0, 3.0], [1.0, 1.0])
    smooth = structured_form(LatentLinearModel([prior, SiteFactor(None, mixture)]))
    assert len(structured_starts(smooth)) == 2


def test_a_checkpoint_belongs_to_the_first_of_several_fits(tmp_path):
    engine = GaussianKL(covariance="diagonal")
    kept = infer(outliers(cauchy), engine, checkpoint=tmp_path / "fit.npz")
    again = infer(outliers(cauchy), engine, checkpoint=tmp_path / "fit.npz")
    assert again.log_evidence == pytest.approx(kept.log_evidence, abs=1e-9)


@pytest.mark.parametrize(("seed", "potential"), [(1, lambda y: potentials.StudentT(2.0, y, 0.2)), (8, cauchy)])
def test_a_full_covariance_does_not_end_below_a_restricted_one(seed, potential):
    model = outliers(potential, seed)
    full = infer(model, "gkl").log_evidence
    chevron = infer(model, GaussianKL(covariance="chevron", rank=2)).log_evidence
    diagonal = infer(model, GaussianKL(covariance="diagonal")).log_evidence
    assert diagonal <= chevron + 1e-6
    assert chevron <= full + 1e-6
