"""The start of an ascent by sites in many dimensions, and that the ascent ends where it did without it."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin import potentials as P
from latlin.inference.engine import site_form
from latlin.inference.gaussian_kl import full, sites
from latlin.inference.gaussian_kl.sites import _mean_variance, cavity_start, starts_from_cavity


def model(name, n=240, d=80, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    x = rows @ rng.standard_normal(d)
    site = {
        "logit": lambda: P.Logit(rng.random(n) < 1.0 / (1.0 + np.exp(-x))),
        "probit": lambda: P.Probit(x + rng.standard_normal(n) > 0.0),
        "poisson": lambda: P.Poisson(rng.poisson(np.exp(0.2 * x))),
    }[name]()
    return LatentLinearModel([GaussianFactor(dim=d), SiteFactor(rows, site)])


@pytest.mark.parametrize("name", ["logit", "probit", "poisson"])
def test_the_ascent_ends_where_it_does_from_the_mode_and_starts_higher(name, monkeypatch):
    problem = model(name)
    form = site_form(problem)
    assert starts_from_cavity(form)
    near = infer(problem, "gkl")
    above = sites.evaluate(form, cavity_start(form), 0.0).bound
    monkeypatch.setattr(full, "starts_from_cavity", lambda form: False)
    far = infer(problem, "gkl")
    below = sites.evaluate(form, full._expand_mode(form), 0.0).bound
    assert near.log_evidence == pytest.approx(far.log_evidence, rel=1e-10)
    assert np.abs(near.mean - far.mean).max() < 1e-5
    assert above > below
    assert near.log_evidence - above < 0.25 * (near.log_evidence - below)


def test_the_mean_variance_is_that_of_rows_in_all_directions():
    n, d = 1500, 500
    rng = np.random.default_rng(1)
    rows, gamma = rng.standard_normal((n, d)) / np.sqrt(d), rng.uniform(0.5, 2.0, n)
    covariance = np.linalg.inv(np.eye(d) + rows.T @ (gamma[:, None] * rows))
    length = np.sum(rows**2, axis=1)
    tau = _mean_variance(1.0, gamma, length, d)
    assert tau == pytest.approx(np.trace(covariance) / d, rel=0.01)
    exact = np.einsum("nd,de,ne->n", rows, covariance, rows)
    assert tau * length / (1.0 + gamma * tau * length) == pytest.approx(exact, rel=0.15)


def test_sites_that_bend_back_and_few_coordinates_start_at_the_mode():
    assert not starts_from_cavity(site_form(model("logit", 60, 20)))
    rows = np.random.default_rng(0).standard_normal((240, 80))
    heavy = SiteFactor(rows, P.StudentT(df=3.0, loc=rows[:, 0], scale=1.0))
    assert not starts_from_cavity(site_form(LatentLinearModel([GaussianFactor(dim=80), heavy])))
