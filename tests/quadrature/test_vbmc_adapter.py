"""The adapter to PyVBMC and the densities it returns."""

import sys
from dataclasses import fields

import numpy as np
import pytest
from scipy.special import expit, logit

from latlin.inference.posterior import Posterior
from latlin.quadrature import Evaluations, GaussianMixture, IntegrandError, VBMCPosterior, vbmc
from latlin.quadrature.vbmc_adapter import Mapped, VbmcMixture, _Recorder

MIXTURE = VbmcMixture(GaussianMixture([0.3, 0.7], [[-1.0, 0.0], [1.0, 2.0]], [[0.5, 1.0], [1.0, 0.2]]))


def test_mixture_moments_are_those_of_its_draws():
    draws = MIXTURE.sample(200_000, random_state=0)
    np.testing.assert_allclose(MIXTURE.mean, draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(MIXTURE.covariance(), np.cov(draws.T), atol=0.03)
    np.testing.assert_allclose(MIXTURE.variance, np.diagonal(MIXTURE.covariance()))


def test_projection_is_the_mixture_of_the_projection():
    row = np.array([[2.0, -1.0]])
    projected = MIXTURE.project(row)
    draws = MIXTURE.sample(200_000, random_state=0) @ row.T
    assert projected.mean[0] == pytest.approx(draws.mean(), abs=0.03)
    assert projected.variance[0] == pytest.approx(draws.var(), rel=0.02)


def test_mapped_density_is_normalised():
    inner = VbmcMixture(GaussianMixture([0.4, 0.6], [[-1.0], [0.5]], [0.5, 0.3]))
    mapped = Mapped(inner, logit, expit, lambda u: np.log(expit(u) * expit(-u)).sum(axis=1))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x = 0.5 * (nodes + 1.0)
    density = np.exp(mapped.logpdf(x[:, None]))
    assert 0.5 * weights @ density == pytest.approx(1.0, abs=1e-8)
    assert 0.5 * weights @ (x * density) == pytest.approx(mapped.mean[0], abs=3e-3)
    with pytest.raises(ValueError, match="needs a posterior without bounds"):
        mapped.project([[1.0]])


def posterior(log_joint):
    known = Evaluations(np.zeros((1, 2)), np.zeros(1))
    return VBMCPosterior(MIXTURE, 0.3, 0.1, "approximation", "vbmc", True, 3, np.zeros(3), 0.1, "", known, log_joint)


def test_it_answers_what_every_posterior_answers():
    post = posterior(MIXTURE.logpdf)
    names = {f.name for f in fields(Posterior)} | {n for n in vars(Posterior) if not n.startswith("_")}
    of_latent_linear_models = {"model", "sites", "bound_error", "power", "kl_bound", "save", "load"}
    of_latent_linear_models |= {"caution", "evidence_term", "names", "with_names"}
    of_latent_linear_models |= {"without_functions", "corrected_marginals"}
    assert [name for name in sorted(names - of_latent_linear_models) if not hasattr(post, name)] == []
    one = np.array([0.2, -0.4])
    assert post.logpdf(one) == pytest.approx(post.logpdf(one[None])[0])
    with pytest.raises(ValueError, match="x must be one vector or rows of length 2"):
        post.logpdf([0.1, 0.2, 0.3])


def test_diagnosis_tells_a_good_mixture_from_a_bad_one():
    good = posterior(lambda x: MIXTURE.logpdf(x) + 1.5).diagnose(400, random_state=0)
    assert good.lower_bound == pytest.approx(1.5)
    assert good.ess == pytest.approx(400.0)
    wide = VbmcMixture(GaussianMixture([1.0], [[0.5, 1.0]], [[40.0, 40.0]]))
    assert posterior(wide.logpdf).diagnose(400, random_state=0).k_hat > 0.7
    with pytest.raises(ValueError, match="n must be an integer of at least 20"):
        posterior(wide.logpdf).diagnose(3)


def test_absence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvbmc", None)
    with pytest.raises(ImportError, match=r"install latlin\[vbmc\]"):
        vbmc(lambda x: -0.5 * np.sum(x**2, axis=1), [0.0])


def test_evaluations_survive_a_failure():
    recorder = _Recorder(lambda x: np.where(x[:, 0] > 1.0, np.nan, -x[:, 0]), 1)
    assert recorder(np.array([0.5])) == -0.5
    with pytest.raises(IntegrandError, match=r"log joint is .*nan.* at") as caught:
        recorder(np.array([2.0]))
    assert caught.value.evaluations.points.tolist() == [[0.5]]


@pytest.mark.filterwarnings("ignore")
def test_evidence_of_a_logistic_posterior():
    pytest.importorskip("pyvbmc")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 2))
    signs = np.where(rng.uniform(size=30) < expit(rows @ [1.0, -1.0]), 1.0, -1.0)

    def log_joint(t):
        prior = -0.5 * np.sum(t**2, axis=1) - np.log(2.0 * np.pi)
        return prior - np.logaddexp(0.0, -(t @ rows.T) * signs).sum(axis=1)

    axis = np.linspace(-6.0, 6.0, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(log_joint(grid))
    area = (axis[1] - axis[0]) ** 2
    post = vbmc(log_joint, [0.0, 0.0], max_evaluations=100, random_state=0)
    assert post.log_evidence == pytest.approx(np.log(density.sum() * area), abs=0.1)
    assert post.evidence_kind == "approximation"
    np.testing.assert_allclose(post.mean, density @ grid / density.sum(), atol=0.1)
    np.testing.assert_allclose(np.sum(np.exp(post.logpdf(grid))) * area, 1.0, atol=1e-3)
    assert len(post.evaluations.values) <= 100
    assert post.diagnose(200, random_state=0).k_hat < 0.7
