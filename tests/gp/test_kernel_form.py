"""The kernel's own site form against the whitened one, which it must equal."""

import numpy as np
import pytest
from scipy import sparse

from gp_problems import KERNEL, inputs, targets
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.inference.engine import site_form
from latlin.inference.forms.dense import KernelForm, _proper
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.stored import Decoder, Encoder

N = 30


def model(potential, mean=0.0):
    return LatentLinearModel([GaussianFactor(mean, KERNEL(inputs(N))), SiteFactor(None, potential)])


def whitened(problem):
    part = gaussian_part(problem)
    return _proper(part, part.whitening, stacked_rows(problem), stacked_sites(problem))


@pytest.mark.parametrize("kind", ["positive", "weak", "zero", "negative"])
def test_every_quantity_is_that_of_the_whitened_form(kind):
    rng = np.random.default_rng(0)
    problem = model(potentials.Logit(targets("labels", inputs(N))), mean=0.3)
    gamma = rng.uniform(0.1, 3.0, N)
    gamma[:10] = {"positive": 1.0, "weak": 1e-7, "zero": 0.0, "negative": -0.05}[kind]
    parameters = SiteParameters(gamma, rng.standard_normal(N))
    ours, theirs = site_form(problem), whitened(problem)
    assert isinstance(ours, KernelForm)
    found, wanted = ours.solve(parameters), theirs.solve(parameters)
    np.testing.assert_allclose(found.u, wanted.u, atol=1e-10)
    np.testing.assert_allclose(found.x, wanted.x, atol=1e-10)
    variance = theirs.variances(wanted)
    np.testing.assert_allclose(ours.variances(found), variance, rtol=1e-10)
    assert ours.log_integral(found) == pytest.approx(theirs.log_integral(wanted), abs=1e-10)
    assert ours.gaussian_terms(found, variance) == pytest.approx(theirs.gaussian_terms(wanted, variance), abs=1e-10)
    density, plain = ours.density(found), theirs.density(wanted)
    np.testing.assert_allclose(density.covariance(), plain.covariance(), atol=1e-10)
    np.testing.assert_allclose(density.variance, plain.variance, atol=1e-10)
    rows = rng.standard_normal((3, N))
    np.testing.assert_allclose(density.project(rows).variance, plain.project(rows).variance, atol=1e-10)
    coordinates = sparse.eye_array(N, format="csr")
    np.testing.assert_allclose(density.project(coordinates).variance, plain.variance, atol=1e-10)
    np.testing.assert_allclose(density.project(2.0 * coordinates).variance, 4.0 * plain.variance, atol=1e-10)
    b = rng.standard_normal(N)
    np.testing.assert_allclose(found.precision.solve(b), wanted.precision.solve(b), atol=1e-10)
    np.testing.assert_allclose(found.precision.whiten(b), wanted.precision.whiten(b), atol=1e-10)
    np.testing.assert_allclose(found.precision.unwhiten(b), wanted.precision.unwhiten(b), atol=1e-10)
    two = rng.standard_normal((N, 2))
    np.testing.assert_allclose(found.precision.solve(two), wanted.precision.solve(two), atol=1e-10)
    encoder = Encoder()
    header = encoder.encode(density, "density")
    stored = Decoder(encoder.arrays).decode(header)
    np.testing.assert_allclose(stored.covariance(), plain.covariance(), atol=1e-10)
    again = ours.restored(parameters, ours.kept(found))
    assert again.log_det == pytest.approx(wanted.precision.log_det, abs=1e-10)


def test_no_proper_gaussian_is_none():
    problem = model(potentials.Logit(targets("labels", inputs(N))))
    parameters = SiteParameters(np.full(N, -50.0), np.zeros(N))
    assert site_form(problem).solve(parameters) is None


def test_both_schedules_of_ep_agree_in_it():
    problem = model(potentials.Probit(targets("labels", inputs(N))))
    fits = [infer(problem, engines.ExpectationPropagation(schedule=s)) for s in ("sequential", "parallel")]
    assert fits[0].log_evidence == pytest.approx(fits[1].log_evidence, abs=1e-7)
    np.testing.assert_allclose(fits[0].mean, fits[1].mean, atol=1e-6)


def test_variances_stay_accurate_where_many_sites_share_what_they_know():
    n = 400
    K = np.exp(-0.5 * ((np.arange(n)[:, None] - np.arange(n)) / 200.0) ** 2)
    problem = LatentLinearModel([GaussianFactor(0.0, K + 1e-8 * np.eye(n)), SiteFactor(None, potentials.Logit(1.0))])
    parameters = SiteParameters(np.full(n, 0.2), np.zeros(n))
    ours, theirs = site_form(problem), whitened(problem)
    wanted = theirs.variances(theirs.solve(parameters))
    np.testing.assert_allclose(ours.variances(ours.solve(parameters)), wanted, rtol=1e-9)


def test_the_gradient_in_the_covariance_is_a_norm_of_the_whitened_one():
    rng = np.random.default_rng(4)
    problem = model(potentials.Logit(targets("labels", inputs(N))))
    parameters = SiteParameters(rng.uniform(0.1, 3.0, N), np.zeros(N))
    ours, excess = site_form(problem), rng.standard_normal(N)
    solution = ours.solve(parameters)
    L = ours.kernel_factor.T
    whole = solution.precision.whiten(L.T * excess @ L)
    found = ours.covariance_gradient(solution, ours.variances(solution), excess)
    assert found == pytest.approx(np.linalg.norm(whole), rel=1e-10)
    weak = SiteParameters(np.where(np.arange(N) < 3, 1e-9, parameters.gamma), np.zeros(N))
    bounded = ours.solve(weak)
    norm = np.linalg.norm(bounded.precision.whiten(L.T * excess @ L))
    assert ours.covariance_gradient(bounded, ours.variances(bounded), excess) >= norm
