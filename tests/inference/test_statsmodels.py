"""Modes under a flat prior are maximum likelihood estimates: those of statsmodels, to 1e-6."""

from __future__ import annotations

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.potentials import Potential

sm = pytest.importorskip("statsmodels.api")
families = sm.families
RNG = np.random.default_rng(7)
N = 120
X = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
ETA = X @ np.array([0.3, 0.5, -0.4])
TRIALS = RNG.integers(1, 12, N)
SUCCESSES = RNG.binomial(TRIALS, 1 / (1 + np.exp(-ETA)))
COUNTS = RNG.poisson(np.exp(ETA) * RNG.gamma(2.0, 0.5, N))
AMOUNTS = np.exp(ETA) * RNG.gamma(3.0, 1 / 3, N)
PARTS = np.array([RNG.gamma(1.5, 0.7, k).sum() for k in RNG.poisson(np.exp(ETA))])
LOG = families.links.Log()


def mode(block: Potential) -> tuple[np.ndarray, float]:
    """The mode under a prior too wide to matter, and the log likelihood there."""
    model = LatentLinearModel([GaussianFactor(mean=0.0, cov=1e12, dim=3), SiteFactor(X, block)])
    w = infer(model, "map").mean
    return w, float(block.log_density(X @ w).sum())


def binomial(link: str) -> tuple[Potential, object]:
    known = {"logit": families.links.Logit(), "probit": families.links.Probit(), "cloglog": families.links.CLogLog()}
    y = np.column_stack([SUCCESSES, TRIALS - SUCCESSES])
    return potentials.Binomial(SUCCESSES, TRIALS, link), sm.GLM(y, X, family=families.Binomial(known[link]))


def peers() -> dict[str, tuple[Potential, object]]:
    found = {f"binomial_{link}": binomial(link) for link in ("logit", "probit", "cloglog")}
    found["negative_binomial"] = (
        potentials.NegativeBinomial(COUNTS, 0.5),
        sm.GLM(COUNTS, X, family=families.NegativeBinomial(alpha=0.5)),
    )
    found["gamma"] = potentials.Gamma(AMOUNTS, 3.0), sm.GLM(AMOUNTS, X, family=families.Gamma(LOG))
    found["inverse_gaussian"] = (
        potentials.InverseGaussian(AMOUNTS, 3.0),
        sm.GLM(AMOUNTS, X, family=families.InverseGaussian(LOG)),
    )
    found["tweedie"] = (
        potentials.Tweedie(PARTS, 1.5, 1.0),
        sm.GLM(PARTS, X, family=families.Tweedie(LOG, var_power=1.5)),
    )
    return found


@pytest.mark.parametrize("name", peers())
def test_generalised_linear_models(name: str):
    block, peer = peers()[name]
    fitted = peer.fit(tol=1e-13, maxiter=500, tol_criterion="params")
    w, log_likelihood = mode(block)
    np.testing.assert_allclose(w, fitted.params, atol=1e-6)
    # where the family has no dispersion the likelihoods have the same constants
    if name.startswith("binomial"):
        assert log_likelihood == pytest.approx(fitted.llf, abs=1e-8)


def test_negative_binomial_likelihood_and_dispersion():
    fitted = sm.NegativeBinomial(COUNTS, X).fit(disp=0, method="newton", maxiter=200, tol=1e-12)
    alpha = fitted.params[-1]
    block = potentials.NegativeBinomial(COUNTS, alpha)
    w, log_likelihood = mode(block)
    np.testing.assert_allclose(w, fitted.params[:-1], atol=1e-6)
    assert log_likelihood == pytest.approx(fitted.llf, abs=1e-8)
    # and the likelihood is level in the dispersion there
    assert abs(block.parameter_derivative("dispersion", X @ w).sum()) < 1e-4


def test_linear_variances_and_proportions():
    from statsmodels.othermod.betareg import BetaModel

    shares = np.clip(SUCCESSES / TRIALS, 0.02, 0.98)
    for peer, ours in (
        (
            sm.NegativeBinomial(COUNTS, X, loglike_method="nb1"),
            lambda last: potentials.NegativeBinomial(COUNTS, last, "linear"),
        ),
        (BetaModel(shares, X), lambda last: potentials.Beta(shares, np.exp(last))),
    ):
        fitted = peer.fit(disp=0, method="bfgs", maxiter=2000, gtol=1e-9)
        w, log_likelihood = mode(ours(fitted.params[-1]))
        np.testing.assert_allclose(w, fitted.params[:-1], atol=1e-6)
        assert log_likelihood == pytest.approx(fitted.llf, abs=1e-7)


def test_zero_inflated_likelihoods():
    params = np.array([0.2, 0.3, -0.1])
    peer = sm.ZeroInflatedPoisson(COUNTS, X, exog_infl=np.ones((N, 1)))
    # the odds of a zero that is not Poisson's come first
    want = peer.loglike(np.concatenate([[np.log(0.25 / 0.75)], params]))
    ours = potentials.ZeroInflated(potentials.Poisson(COUNTS), 0.25).log_density(X @ params).sum()
    assert ours == pytest.approx(want, abs=1e-9)
