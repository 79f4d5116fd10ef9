"""First steps of a Gaussian KL ascent by sites in single precision: they lead where exact ones do, or nowhere."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.inference.forms.projections import DenseProjections, RoughProjections
from latlin.inference.gaussian_kl import sites

SITES = {
    "logit": lambda x, rng: potentials.Logit(x + rng.logistic(size=len(x)) > 0.0),
    "probit": lambda x, rng: potentials.Probit(x + rng.standard_normal(len(x)) > 0.0),
    "poisson": lambda x, rng: potentials.Poisson(rng.poisson(np.exp(0.3 * x))),
}


def model(family, scale=1.0, cov=1.0):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((250, 70))
    x = rows @ rng.standard_normal(70) / 4.0
    return LatentLinearModel([GaussianFactor(cov=cov, dim=70), SiteFactor(scale * rows, SITES[family](x, rng))])


@pytest.fixture
def products(monkeypatch):
    """How often weighted Gram matrices are made, in single and in double precision."""
    counts = {"rough": 0, "exact": 0}

    def counted(kind, owner):
        gram = owner.gram

        def asked(self, weights):
            counts[kind] += 1
            return gram(self, weights)

        monkeypatch.setattr(owner, "gram", asked)

    counted("rough", RoughProjections)
    counted("exact", DenseProjections)
    return counts


def exactly(monkeypatch, problem):
    with monkeypatch.context() as patch:
        patch.setattr(sites, "climb_roughly", lambda *_: None)
        return infer(problem, "gkl")


@pytest.mark.parametrize("family", SITES)
def test_the_optimum_is_that_of_exact_steps_with_fewer_of_them(family, monkeypatch, products):
    problem = model(family)
    exact = exactly(monkeypatch, problem)
    alone, products["exact"] = products["exact"], 0
    rough = infer(problem, "gkl")
    assert products["rough"] >= 1
    assert products["exact"] < alone
    assert rough.converged
    assert rough.log_evidence == pytest.approx(exact.log_evidence, rel=1e-11)
    np.testing.assert_allclose(rough.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(rough.covariance(), exact.covariance(), atol=1e-8)
    # the trace is of exact steps alone
    assert np.all(np.diff(rough.trace) > -1e-9)


@pytest.mark.parametrize("wrong", [0.5, 1.01, 2.0])
def test_products_that_are_wrong_change_no_result(wrong, monkeypatch):
    problem = model("logit")
    exact = exactly(monkeypatch, problem)
    variances = RoughProjections.variances
    monkeypatch.setattr(RoughProjections, "variances", lambda self, factor: wrong * variances(self, factor))
    found = infer(problem, "gkl")
    assert found.converged
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-11)


@pytest.mark.parametrize(("scale", "cov"), [(1.0, 1e4), (30.0, 1.0)])
def test_far_from_the_optimum_all_steps_are_exact(scale, cov, monkeypatch, products):
    problem = model("logit", scale, cov)
    found, exact = infer(problem, "gkl"), exactly(monkeypatch, problem)
    assert found.log_evidence == exact.log_evidence
    assert products["rough"] <= 3


def test_a_fit_that_goes_on_from_another_or_keeps_its_state_is_exact(tmp_path, products):
    problem = model("logit")
    first = infer(problem, "gkl", checkpoint=tmp_path / "state.npz")
    infer(problem, "gkl", start=first)
    assert products["rough"] == 0
