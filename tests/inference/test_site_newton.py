"""Newton's step on site parameters: its covariance, what it leaves of the gradient, and when it is left out."""

from itertools import pairwise

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.inference.engine import site_form
from latlin.inference.forms.dense import KernelForm
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl import sites


def _model(n=12, dim=30, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    H, y = rng.standard_normal((n, dim)), rng.random(n) < 0.5
    return LatentLinearModel([GaussianFactor(cov=scale, dim=dim), SiteFactor(H, potentials.Logit(y))])


def _state(form, seed=1):
    rng = np.random.default_rng(seed)
    return sites.evaluate(form, SiteParameters(rng.uniform(0.05, 0.3, 12), rng.standard_normal(12)), 1e-8)


def test_the_sites_covariance_is_that_of_the_posterior():
    model = _model()
    form = site_form(model)
    state = _state(form)
    solution = sites.solution_of(form, state.place)
    H = model.sites[0].H
    expected = np.linalg.inv(np.linalg.inv(H @ H.T) + np.diag(state.place.gamma))
    np.testing.assert_allclose(np.triu(form.site_covariance(solution)), np.triu(expected), rtol=1e-9, atol=1e-10)


def test_a_step_leaves_little_of_the_gradient():
    form = site_form(_model())
    best = infer(_model(), "gkl").sites
    state = sites.evaluate(form, SiteParameters(1.1 * best.gamma, best.nu), np.inf)
    gradients = [state.gradient]
    for _ in range(3):
        state = sites.SiteCoordinates.about(form, state.place, np.inf).newton(state)
        gradients.append(state.gradient)
    assert gradients[0] > 1e-2
    assert all(after < 0.1 * before for before, after in pairwise(gradients))


def test_no_newton_step_far_from_the_optimum_or_with_vanishing_sites():
    form = site_form(_model())
    assert isinstance(form, KernelForm)
    far = _state(form)
    assert far.gradient > sites.CLOSE
    assert sites.SiteCoordinates.about(form, far.place, 1e-8).newton(far) is None
    weak = sites.evaluate(form, SiteParameters(np.full(12, 1e-9), np.zeros(12)), 1e-8)
    assert form.site_covariance(sites.solution_of(form, weak.place)) is None


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_few_sites_end_where_many_dimensions_do(scale):
    few = infer(_model(scale=scale), "gkl")
    model = _model(scale=scale)
    rows = np.vstack([model.sites[0].H, np.zeros((40, 30))])
    weight = np.r_[np.ones(12), np.zeros(40)]
    labels = np.r_[np.asarray(model.sites[0].potential.y), np.ones(40)]
    padded = LatentLinearModel([GaussianFactor(cov=scale, dim=30), SiteFactor(rows, potentials.Logit(labels), weight)])
    many = infer(padded, "gkl")
    assert not isinstance(site_form(padded), KernelForm)
    assert few.log_evidence == pytest.approx(many.log_evidence, abs=1e-8)
    np.testing.assert_allclose(few.mean, many.mean, atol=1e-5 * np.sqrt(scale))


# --- steps bent towards Newton's, where the sites' covariance is not at hand


def _broad(family: str, n: int = 400, dim: int = 80) -> LatentLinearModel:
    rng = np.random.default_rng(3)
    H = rng.standard_normal((n, dim))
    x = H @ rng.standard_normal(dim) * (0.1 if family == "poisson" else 1.0)
    block = {
        "logit": lambda: potentials.Logit(rng.random(n) < 1.0 / (1.0 + np.exp(-x))),
        "probit": lambda: potentials.Probit(x + rng.standard_normal(n) > 0.0),
        "poisson": lambda: potentials.Poisson(rng.poisson(np.exp(x))),
        "cloglog": lambda: potentials.Binomial(rng.binomial(3, 0.5 * (1.0 + np.tanh(0.2 * x))), 3, "cloglog"),
    }[family]()
    return LatentLinearModel([GaussianFactor(dim=dim), SiteFactor(H, block)])


def test_the_common_share_and_the_sites_own_make_up_the_squares_on_average():
    model = _broad("logit")
    form = site_form(model)
    place = sites.evaluate(form, SiteParameters(np.full(400, 0.1), np.zeros(400)), np.inf).place
    H = model.sites[0].H
    S = H @ np.linalg.inv(np.eye(80) + 0.1 * H.T @ H) @ H.T
    s = np.diag(S)
    # (1 − κ) diag(s²) + κ ssᵀ has the sum of S∘S; probes know κ to some tenths
    kappa = ((S**2).sum() - (s**2).sum()) / (s.sum() ** 2 - (s**2).sum())
    assert sites.common_share(form, place) == pytest.approx(kappa, rel=0.2)


@pytest.mark.parametrize("family", ["logit", "probit", "poisson", "cloglog"])
def test_bent_steps_end_at_the_same_bound_in_fewer_steps(family: str, monkeypatch: pytest.MonkeyPatch):
    bent = infer(_broad(family), "gkl")
    monkeypatch.setattr(sites, "BROAD", 10**9)
    plain = infer(_broad(family), "gkl")
    assert bent.converged
    assert plain.converged
    assert bent.log_evidence == pytest.approx(plain.log_evidence, rel=1e-9)
    np.testing.assert_allclose(bent.mean, plain.mean, atol=1e-5)
    assert np.all(np.diff(bent.trace) > -1e-9)
    assert bent.n_iter <= (0.75 * plain.n_iter if family == "logit" else plain.n_iter)
