"""Hyperparameters of whole models: conjugate cases in closed form, brute force, posteriors with known answers."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse
from scipy.integrate import quad
from scipy.special import expit, gammaln
from scipy.stats import t as student

import latlin
from latlin import (
    GaussianFactor,
    LatentLinearModel,
    SiteFactor,
    infer,
    integrate_evidence,
    maximise_evidence,
    potentials,
    priors,
)
from latlin.densities.density import Mixture
from latlin.hyper.evidence import evidence_slopes
from latlin.inference.diagnosis.log_joint import AveragedModel, log_joint


class Conjugate:
    """y ~ N(Xw, v), w ~ N(0, v V), v ~ InverseGamma(a, b): everything in closed form (Bishop, 2006, §3.5)."""

    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 2))
    y = X @ [1.0, -0.5] + 0.4 * rng.standard_normal(12)
    V, a, b = np.array([4.0, 2.0]), 2.0, 0.5

    def build(self, v):
        return LatentLinearModel(
            [GaussianFactor(0.0, v * self.V), SiteFactor(self.X, potentials.Gaussian(self.y, np.sqrt(v)))]
        )

    @property
    def posterior(self):
        """Mean, scale matrix, shape and scale of the normal-inverse-gamma posterior, and the log evidence."""
        P = np.diag(1.0 / self.V) + self.X.T @ self.X
        m = np.linalg.solve(P, self.X.T @ self.y)
        n = len(self.y)
        shape, scale = self.a + 0.5 * n, self.b + 0.5 * (self.y @ self.y - m @ P @ m)
        log_det = -np.linalg.slogdet(P)[1] - np.log(self.V).sum()
        log_z = 0.5 * (log_det - n * np.log(2 * np.pi)) + self.a * np.log(self.b) - shape * np.log(scale)
        return m, np.linalg.inv(P), shape, scale, log_z + gammaln(shape) - gammaln(self.a)


@pytest.fixture(scope="module")
def conjugate():
    case = Conjugate()
    return case, integrate_evidence(case.build, {"v": 0.5}, priors={"v": priors.InverseGamma(case.a, case.b)})


def test_conjugate_evidence_and_scale(conjugate):
    case, found = conjugate
    _, _, shape, scale, log_z = case.posterior
    assert found.log_evidence == pytest.approx(log_z, abs=5e-4)
    assert found.posterior.evidence_kind == "approximation"
    assert found.posterior.bound_error < 0.01
    exact = priors.InverseGamma(shape, scale)
    row = found.hyperparameters["v"]
    assert row["mean"] == pytest.approx(scale / (shape - 1), rel=2e-3)
    assert row["sd"] == pytest.approx(scale / (shape - 1) / np.sqrt(shape - 2), rel=0.01)
    for level, name in ((0.05, "5%"), (0.5, "50%"), (0.95, "95%")):
        assert row[name] == pytest.approx(float(exact.quantile(level)), rel=0.01)
    x = exact.quantile([0.1, 0.5, 0.9])
    np.testing.assert_allclose(found.hyperparameters.marginals["v"].pdf(x), np.exp(exact.log_density(x)), rtol=0.03)


def test_the_density_of_a_scale_goes_to_zero_evenly():
    # few draws are near zero: of one alone, a narrow kernel makes a peak
    y = 0.35 * np.random.default_rng(4).standard_normal(8)

    def build(scale):
        return LatentLinearModel([GaussianFactor(0.0, scale**2, dim=8), SiteFactor(None, potentials.Gaussian(y, 1.0))])

    def joint(s):
        return np.exp(-0.5 * np.sum(y**2) / (1 + s * s) - 4.0 * np.log1p(s * s) - 0.5 * s * s)

    found = integrate_evidence(build, {"scale": 0.5}, priors={"scale": priors.HalfNormal(1.0)})
    marginal = found.hyperparameters.marginals["scale"]
    exact = joint(marginal.x) / quad(joint, 0.0, 9.0)[0]
    assert np.max(marginal.density / exact) < 1.6
    off = np.abs(marginal.density - exact)[marginal.x > 0.05]
    assert np.max(off) < 0.05 * exact.max()


def test_conjugate_coefficients_are_student_t(conjugate):
    case, found = conjugate
    m, S, shape, scale, _ = case.posterior
    H = np.array([[1.0, 0.0], [0.3, 2.0]])
    width = np.sqrt(scale / shape * np.einsum("nd,de,ne->n", H, S, H))
    marginals = found.posterior.project(H)
    np.testing.assert_allclose(marginals.mean, H @ m, rtol=1e-4)
    np.testing.assert_allclose(marginals.std, width * np.sqrt(shape / (shape - 1)), rtol=3e-3)
    for q in (0.01, 0.05, 0.4, 0.95):
        np.testing.assert_allclose(
            marginals.quantile(q), H @ m + width * student(2 * shape).ppf(q), atol=0.01 * width.max()
        )


def test_maximising_is_too_narrow_and_the_average_is_not(conjugate):
    case, found = conjugate
    best = maximise_evidence(case.build, {"v": 0.5}, priors={"v": priors.InverseGamma(case.a, case.b)})
    assert np.all(best.posterior.variance < found.posterior.variance)
    _, _, shape, scale, _ = case.posterior
    # evidence × prior is an inverse gamma density of the variance: its mode, and its curvature there
    assert best.parameters["v"] == pytest.approx(scale / (shape + 1), rel=1e-5)
    assert best.hessian[0, 0] == pytest.approx(-((shape + 1) ** 3) / scale**2, rel=1e-3)


def test_with_many_rows_maximising_is_enough():
    X = np.random.default_rng(0).standard_normal((400, 2))
    y = X @ [1.0, -0.5] + 0.4 * np.random.default_rng(1).standard_normal(400)

    def build(noise):
        return LatentLinearModel([GaussianFactor(0.0, 1.0, dim=2), SiteFactor(X, potentials.Gaussian(y, noise))])

    found = maximise_evidence(build, {"noise": 0.5})
    assert found.posterior.caution is None
    assert found.posterior.diagnose(random_state=0).verdict == "accurate"


def test_the_mixture_answers_everything(conjugate, tmp_path):
    _, found = conjugate
    post = found.posterior
    assert isinstance(post.density, Mixture)
    assert isinstance(post.model, AveragedModel)
    np.testing.assert_allclose(np.diag(post.covariance()), post.variance)
    draws = post.sample(20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), post.mean, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), post.variance, rtol=0.05)
    # the log joint is that of the averaged model, so the weights of draws are even
    weights = log_joint(post.model)(draws[:100]) - post.logpdf(draws[:100])
    np.testing.assert_allclose(weights, post.log_evidence, atol=1e-6)
    assert post.diagnose(random_state=0).verdict == "accurate"
    post.save(tmp_path / "posterior.npz")
    again = latlin.load(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(again.sample(5, 1), post.sample(5, 1))
    assert again.bound_error == post.bound_error
    assert dataclasses.replace(again, model=post.model).diagnose(random_state=0).verdict == "accurate"


X1 = np.random.default_rng(5).standard_normal((40, 1))
Y1 = (np.random.default_rng(6).random(40) < expit(1.5 * X1[:, 0])).astype(int)


def logistic(scale):
    return LatentLinearModel([GaussianFactor(0.0, scale**2, dim=1), SiteFactor(X1, potentials.Logit(Y1))])


def brute_force(prior):
    """log Z, moments of w and of the scale by nested adaptive quadrature."""

    def inner(scale, power):
        def joint(w):
            signs = 2.0 * Y1 - 1.0
            return (
                w**power
                * np.exp(-0.5 * (w / scale) ** 2)
                / (scale * np.sqrt(2 * np.pi))
                * np.prod(expit(signs * X1[:, 0] * w))
            )

        return quad(joint, -2.0, 6.0, limit=200, points=[1.5])[0]

    def outer(power, scale_power=0):
        return quad(
            lambda s: s**scale_power * inner(s, power) * float(np.exp(prior.log_density(s))), 1e-6, 40.0, limit=200
        )[0]

    z = outer(0)
    mean = outer(1) / z
    return np.log(z), mean, np.sqrt(outer(2) / z - mean**2), outer(0, 1) / z


@pytest.mark.parametrize("engine", ["gkl", "ep"])
def test_brute_force_over_weight_and_scale(engine):
    prior = priors.HalfNormal(2.0)
    log_z, mean, sd, scale = brute_force(prior)
    found = integrate_evidence(logistic, {"scale": 1.0}, priors={"scale": prior}, engine=engine)
    post = found.posterior
    if engine == "gkl":
        assert post.evidence_kind == "lower bound"
        assert log_z - 0.02 < post.log_evidence < log_z + post.bound_error
    else:
        assert post.evidence_kind == "approximation"
        assert post.log_evidence == pytest.approx(log_z, abs=0.01)
    assert float(post.mean[0]) == pytest.approx(mean, abs=0.03 * sd)
    assert float(np.sqrt(post.variance[0])) == pytest.approx(sd, rel=0.04)
    assert found.parameters["scale"] == pytest.approx(scale, rel=0.02)


def test_the_integral_is_that_of_the_bound():
    prior = priors.HalfCauchy(1.0)
    found = integrate_evidence(logistic, {"scale": 1.0}, priors={"scale": prior}, engine="gkl")
    exact = quad(
        lambda u: np.exp(infer(logistic(np.exp(u)), "gkl").log_evidence + float(prior.log_density_of_log(u))), -9, 9
    )[0]
    assert found.log_evidence == pytest.approx(np.log(exact), abs=2e-3)


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
EFFECTS = np.column_stack([np.ones(8), np.eye(8)])


def schools(spread):
    prior = GaussianFactor(0.0, np.array([25.0, *np.full(8, spread**2)]))
    return LatentLinearModel([prior, SiteFactor(EFFECTS, potentials.Gaussian(SCHOOLS, ERRORS))])


def test_eight_schools():
    """Means and sds of ten chains of ten thousand draws (posteriordb, eight_schools-eight_schools_noncentered)."""
    found = integrate_evidence(schools, {"spread": 5.0}, priors={"spread": priors.HalfCauchy(5.0)})
    mean = np.array([6.1505, 4.9396, 3.9059, 4.7960, 3.6144, 4.0511, 6.3172, 4.8840])
    sd = np.array([5.6159, 4.6456, 5.2807, 4.7709, 4.6147, 4.7962, 5.0029, 5.3177])
    effects = found.posterior.project(EFFECTS)
    assert np.all(np.abs(effects.mean - mean) < 0.03 * sd + 0.02 * sd)
    np.testing.assert_allclose(effects.std, sd, rtol=0.03)
    assert found.hyperparameters["spread"]["mean"] == pytest.approx(3.6021, abs=0.05)
    assert found.hyperparameters["spread"]["sd"] == pytest.approx(3.1985, rel=0.03)


def test_eight_schools_maximised_say_so():
    found = maximise_evidence(schools, {"spread": 5.0}, priors={"spread": priors.HalfCauchy(5.0)})
    assert found.hyperparameters.at_bound == ("spread",)
    diagnosis = found.posterior.diagnose(random_state=0)
    assert diagnosis.verdict == "wrong"
    assert "spread runs to the lower end" in diagnosis.reason


def test_maximising_is_told_to_be_too_narrow():
    """Six groups that differ: how much they do is far from certain, and so is their mean."""
    y = np.array([-2.0, 3.1, 0.4, -1.2, 2.2, 0.3])
    H = np.column_stack([np.ones(6), np.eye(6)])

    def build(spread):
        prior = GaussianFactor(0.0, np.array([100.0, *np.full(6, spread**2)]))
        return LatentLinearModel([prior, SiteFactor(H, potentials.Gaussian(y, 0.8))])

    given = {"spread": priors.Gamma(2.0, 0.5)}
    best, average = (f(build, {"spread": 1.0}, priors=given) for f in (maximise_evidence, integrate_evidence))
    diagnosis = best.posterior.diagnose(random_state=0)
    assert diagnosis.verdict == "rough"
    assert "integrate over them" in diagnosis.reason
    assert np.max(average.posterior.variance / best.posterior.variance) > 1.2
    assert average.posterior.diagnose(random_state=0).verdict == "accurate"


RNG = np.random.default_rng(8)
X2 = RNG.standard_normal((15, 3))
Y2 = X2 @ [1.0, 0.0, -0.5] + 0.3 * RNG.standard_t(4, 15)
LINE = np.linspace(0.0, 1.0, 15)


def many_parts(scale, centre, noise, length):
    """A mean, a full covariance, a location–scale and a shape that all move."""
    K = np.exp(-0.5 * (LINE[:, None] - LINE) ** 2 / length**2) + 0.1 * np.eye(15)
    H = np.column_stack([np.eye(15)])
    return LatentLinearModel([GaussianFactor(centre, scale**2 * K), SiteFactor(H, potentials.StudentT(4.0, Y2, noise))])


@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep"])
def test_gradients_of_a_users_own_model(engine):
    values = {"scale": 0.8, "centre": 0.2, "noise": 0.4, "length": 0.3}
    tight = {"gkl": latlin.engines.GaussianKL(tol=1e-10), "laplace": latlin.engines.Laplace(tol=1e-12)}.get(
        engine, engine
    )
    slopes = evidence_slopes(many_parts, values, infer(many_parts(**values), tight))
    for name, value in values.items():
        h = 1e-4
        ahead, behind = (infer(many_parts(**{**values, name: value + s * h}), tight).log_evidence for s in (1.0, -1.0))
        assert slopes[name] == pytest.approx((ahead - behind) / (2 * h), rel=2e-4, abs=2e-5)


def test_gradients_in_the_precision_of_a_prior():
    """A random walk with its own precision: tau moves an intrinsic prior, noise the sites."""
    R = sparse.diags_array([np.r_[1.0, np.full(13, 2.0), 1.0], -np.ones(14), -np.ones(14)], offsets=[0, 1, -1]).tocsr()

    def build(tau, noise):
        prior = GaussianFactor(precision=tau * R, rank=14)
        return LatentLinearModel([prior, SiteFactor(None, potentials.Gaussian(Y2, noise))])

    values = {"tau": 2.0, "noise": 0.5}
    slopes = evidence_slopes(build, values, infer(build(**values), "gkl"))
    for name, value in values.items():
        ends = (infer(build(**{**values, name: value + s * 1e-4}), "gkl").log_evidence for s in (1.0, -1.0))
        ahead, behind = ends
        assert slopes[name] == pytest.approx((ahead - behind) / 2e-4, rel=1e-4, abs=1e-5)


def test_a_moving_design_falls_back_to_differences():
    def build(slope):
        rows = np.column_stack([np.ones(15), np.exp(-slope * LINE)])
        return LatentLinearModel([GaussianFactor(0.0, 4.0, dim=2), SiteFactor(rows, potentials.Gaussian(Y2, 0.5))])

    assert evidence_slopes(build, {"slope": 1.0}, infer(build(1.0), "gkl")) is None
    found = maximise_evidence(build, {"slope": 1.0}, bounds={"slope": (0.01, 20.0)})
    h = 0.05 * found.parameters["slope"]
    at = [infer(build(found.parameters["slope"] + s * h), "gkl").log_evidence for s in (-1.0, 0.0, 1.0)]
    assert at[1] >= max(at) - 1e-9


def test_a_flat_prior_is_plain_evidence_maximisation():
    from latlin.linear import BayesianLinearRegression

    line = BayesianLinearRegression(fit_intercept=False, standardise=False).fit(X2, Y2)

    def build(scale, noise):
        return LatentLinearModel([GaussianFactor(0.0, scale**2, dim=3), SiteFactor(X2, potentials.Gaussian(Y2, noise))])

    found = maximise_evidence(build, {"scale": 1.0, "noise": 1.0})
    assert found.log_evidence >= line.log_evidence_ - 1e-8


def test_an_improper_prior_has_no_evidence():
    found = integrate_evidence(logistic, {"scale": 1.0}, bounds={"scale": (0.01, 5.0)}, engine="gkl")
    assert found.posterior.evidence_kind == "none"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: maximise_evidence(logistic, {}), "start must give every parameter of build a number by name"),
        (lambda: maximise_evidence(3, {"scale": 1.0}), "build must be a function of the parameters, got 3"),
        (lambda: maximise_evidence(lambda s: s, {"s": 1.0}), "build must return a LatentLinearModel, got float"),
        (lambda: maximise_evidence(logistic, {"scale": 1.0}, engine="map"), "engine 'map' has no evidence"),
        (lambda: maximise_evidence(logistic, {"scale": 1.0}, bounds={"s": (0, 1)}), "bounds names s, which start does"),
        (lambda: integrate_evidence(logistic, {"scale": 1.0}, priors={"b": priors.Flat()}), "priors names b"),
        (lambda: integrate_evidence(logistic, {"scale": 1.0}, priors={"scale": 2.0}), "must be one of latlin.priors"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
