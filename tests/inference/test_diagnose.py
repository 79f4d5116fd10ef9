"""diagnose(): intervals that hold and verdicts that are never kinder than the truth, against brute force."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import CovarianceWhitening, PrecisionCovariance
from latlin.inference.diagnosis import log_joint
from latlin.inference.diagnosis.log_joint import LogJoint
from latlin.numerics.linalg import Cholesky
from reference import brute_force

FAMILIES = {
    "logit": lambda y, s: potentials.Logit(y > 0),
    "probit": lambda y, s: potentials.Probit(y > 0),
    "poisson": lambda y, s: potentials.Poisson(np.round(np.abs(2 * y))),
    "ordinal": lambda y, s: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8]),
    "laplace": lambda y, s: potentials.Laplace(y, s),
    "logistic": lambda y, s: potentials.Logistic(y, s),
    "student": lambda y, s: potentials.StudentT(3.0, y, s),
    "cauchy": lambda y, s: potentials.Cauchy(y, s),
    "mixture": lambda y, s: potentials.GaussianMixture([0.5, 0.5], 0.0, [0.3, 2.0]),
    "power": lambda y, s: potentials.GeneralisedNormal(0.8, y, s),
}


def random_case(seed):
    """A random model of one or two dimensions, and a posterior of some engine that applies."""
    rng = np.random.default_rng(seed)
    d, n = (2 if seed % 10 == 0 else 1), int(rng.integers(1, 8))
    rows, y = rng.normal(size=(n, d)) * rng.choice([0.5, 1.0, 2.0]), rng.normal(size=n) * rng.choice([0.5, 2.0])
    sites = SiteFactor(rows, FAMILIES[rng.choice(sorted(FAMILIES))](y, rng.uniform(0.3, 1.5)))
    if rng.random() < 0.25:
        prior = SiteFactor(None, potentials.Laplace(np.zeros(d), rng.uniform(0.5, 2.0)))
    else:
        prior = GaussianFactor(cov=rng.uniform(0.5, 3.0) * rng.choice([1.0, 9.0]), dim=d)
    model = LatentLinearModel([sites, prior])
    for engine in rng.permutation(["laplace", "gkl", "ep", "lvb", "mean-field"]):
        try:
            return model, infer(model, str(engine))
        except ValueError:
            continue
    return model, infer(model, "gkl")


def truth(model, diagnosis):
    """Brute force on a grid laid by the corrected moments, so that a bad posterior does not lay a bad grid."""
    covariance = np.atleast_2d(diagnosis.covariance)
    wide = SimpleNamespace(mean=diagnosis.mean, covariance=lambda: covariance)
    return brute_force(model, wide, half_width=12.0, count={1: 4001, 2: 301}[model.dim])


def gaussian(mean, covariance):
    """N(mean, covariance) as a posterior's density."""
    factor = np.asfortranarray(np.linalg.cholesky(covariance).T)
    unit = Cholesky(np.asfortranarray(np.eye(len(mean))), 0.0)
    return Gaussian(mean, PrecisionCovariance(CovarianceWhitening(factor), unit))


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_intervals_hold_and_accurate_means_accurate():
    widths, covered, seed = [], [], 0
    while len(covered) < 200:
        model, posterior = random_case(seed)
        found = posterior.diagnose(random_state=seed)
        seed += 1
        if found.verdict != "accurate":
            continue
        log_z, mean, covariance = truth(model, found)
        sd = np.sqrt(np.diagonal(covariance))
        low, high = found.evidence_interval
        covered.append(low - 1e-6 <= log_z <= high + 1e-6)
        widths.append(high - low)
        assert np.max(np.abs(posterior.mean - mean) / sd) <= 0.3, seed
        ratio = np.sqrt(posterior.variance) / sd
        assert ratio.min() >= 0.7, seed
        assert ratio.max() <= 1.4, seed
    assert np.mean(covered) >= 0.95
    assert np.median(widths) <= 0.5
    assert seed < 600


def logistic(d, n=None, prior=None):
    rng = np.random.default_rng(d)
    sites = SiteFactor(rng.normal(size=(n or 3 * d, d)), potentials.Logit(rng.random(n or 3 * d) < 0.5))
    return LatentLinearModel([prior or GaussianFactor(dim=d), sites])


@pytest.mark.parametrize("d", [1, 3, 10, 40])
@pytest.mark.parametrize("wrong", ["wide", "narrow", "shifted"])
def test_a_wrong_posterior_is_not_to_be_used(d, wrong):
    posterior = infer(logistic(d), "gkl")
    cov = posterior.covariance()
    away = 5.0 * np.sqrt(np.diagonal(cov)) * (np.arange(d) == 0)
    density = {
        "wide": lambda: gaussian(posterior.mean, 9.0 * cov),
        "narrow": lambda: gaussian(posterior.mean, cov / 9.0),
        "shifted": lambda: gaussian(posterior.mean + away, cov),
    }[wrong]()
    found = replace(posterior, density=density).diagnose(random_state=0)
    assert found.verdict == "wrong"
    assert found.next_engine != ""


@pytest.mark.parametrize("d", [1, 3, 10])
@pytest.mark.parametrize(("shift", "stretch"), [(0.4, 1.0), (0.0, 1.5), (0.0, 0.6)])
def test_a_posterior_that_is_a_little_wrong_is_not_accurate(d, shift, stretch):
    posterior = infer(logistic(d), "gkl")
    cov = posterior.covariance()
    moved = posterior.mean + shift * np.sqrt(np.diagonal(cov)) * (np.arange(d) == 0)
    found = replace(posterior, density=gaussian(moved, stretch**2 * cov)).diagnose(random_state=0)
    assert found.verdict != "accurate"
    assert "corrected moments" in found.reason or "k̂" in found.reason


@pytest.mark.parametrize("engine", ["laplace", "gkl", "ep", "ai-kl"])
def test_cauchy_priors_are_said(engine):
    prior = SiteFactor(None, potentials.Cauchy(np.zeros(2), 1.0))
    found = infer(logistic(2, n=1, prior=prior), engine).diagnose(random_state=0)
    assert found.verdict != "accurate"
    assert "Cauchy sites" in found.reason


def test_exact_posterior_has_exact_evidence():
    model = LatentLinearModel([GaussianFactor(dim=2), SiteFactor([[1.0, 2.0]], potentials.Gaussian([0.5], 0.3))])
    posterior = infer(model, "gkl")
    found = posterior.diagnose(random_state=0)
    assert found.verdict == "accurate"
    assert found.log_evidence == pytest.approx(posterior.log_evidence, abs=1e-9)
    assert found.evidence_interval[0] <= posterior.log_evidence <= found.evidence_interval[1]
    np.testing.assert_allclose(found.mean, posterior.mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, posterior.covariance(), atol=1e-9)


def test_the_other_mode_is_found():
    """Two observations that contradict each other under a Student t: a Laplace approximation sits on one of them."""
    sites = SiteFactor(None, potentials.StudentT(2.0, [8.0], 0.3))
    model = LatentLinearModel([GaussianFactor(cov=9.0, dim=1), sites])
    found = infer(model, "laplace").diagnose(random_state=0)
    log_z, mean, _ = brute_force(model, infer(model, engines.GaussianKL()), half_width=60.0)
    assert found.verdict == "wrong"
    assert found.evidence_interval[0] <= log_z <= found.evidence_interval[1]
    assert found.mean == pytest.approx(mean, abs=0.2)


@pytest.mark.parametrize(
    "engine",
    [
        engines.MeanField(),
        engines.GaussianKL(covariance="diagonal"),
        engines.GaussianKL(covariance="chevron", rank=1),
        engines.GaussianKL(covariance="low-rank", rank=1),
        engines.AffineKL(base="skew-normal"),
        engines.LocalBound(variances="lanczos"),
    ],
    ids=lambda engine: engine.name + str(getattr(engine, "covariance", "")),
)
def test_every_kind_of_posterior_agrees_on_the_evidence(engine):
    model = logistic(3)
    best = infer(model, "ep").diagnose(random_state=1)
    found = infer(model, engine).diagnose(random_state=0)
    assert found.log_evidence == pytest.approx(
        best.log_evidence, abs=5.0 * np.hypot(found.log_evidence_se, best.log_evidence_se)
    )
    np.testing.assert_allclose(found.mean, best.mean, atol=0.1)


def test_log_joint_of_every_kind_of_factor():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    cov = np.array([[1.0, 0.3], [0.3, 2.0]])
    y = np.array([1.0, -1.0, 1.0, 1.0])

    def model(rows):
        gaussians = [GaussianFactor(cov=[1.0, 2.0, 3.0]), GaussianFactor([0.1, 0.2], cov, H=X[:2])]
        return LatentLinearModel([*gaussians, SiteFactor(rows, potentials.Logit(y), weight=[1, 0, 2, 1], offset=0.3)])

    expected = LogJoint(model(X))(w)
    by_hand = -0.5 * (w**2 / [1.0, 2.0, 3.0] + np.log(2 * np.pi * np.array([1.0, 2.0, 3.0]))).sum(axis=1)
    r = w @ X[:2].T - [0.1, 0.2]
    by_hand -= 0.5 * (np.einsum("ni,ij,nj->n", r, np.linalg.inv(cov), r) + np.linalg.slogdet(2 * np.pi * cov)[1])
    by_hand -= np.log1p(np.exp(-y * (w @ X.T + 0.3))) @ [1, 0, 2, 1]
    np.testing.assert_allclose(expected, by_hand)
    np.testing.assert_allclose(LogJoint(model(sparse.csr_array(X)))(w), expected)
    np.testing.assert_allclose(LogJoint(model(aslinearoperator(X)))(w), expected)


def test_a_point_gets_a_sentence():
    found = infer(logistic(2), "map").diagnose()
    assert found.verdict == "wrong"
    assert "point estimate" in found.reason
    assert "next: gkl" in str(found)


def test_the_same_seed_gives_the_same_numbers_and_few_draws_are_refused():
    posterior = infer(logistic(2), "gkl")
    assert posterior.diagnose(random_state=3).log_evidence == posterior.diagnose(random_state=3).log_evidence
    assert posterior.diagnose(random_state=3).log_evidence != posterior.diagnose(random_state=4).log_evidence
    with pytest.raises(ValueError, match="n must be an integer of at least 200"):
        posterior.diagnose(n=10)


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_a_fit_that_did_not_converge_is_never_accurate():
    posterior = infer(logistic(2), engines.GaussianKL(max_iter=2, tol=1e-12))
    assert posterior.diagnose(random_state=0).verdict == "rough"


def test_a_factorised_posterior_of_a_smooth_function_is_not_for_use():
    places = np.linspace(0.0, 1.0, 25)
    cov = 4.0 * np.exp(-0.5 * ((places[:, None] - places) / 0.3) ** 2) + 1e-3 * np.eye(25)
    model = LatentLinearModel([GaussianFactor(cov=cov), SiteFactor(None, potentials.Logit(places > 0.4))])
    found = infer(model, "mean-field").diagnose(random_state=0)
    assert found.verdict == "wrong"
    assert "KL(q‖p) is above" in found.reason
    assert infer(model, "ep").diagnose(random_state=0).verdict != "wrong"


@pytest.mark.parametrize("kind", ["dense", "sparse", "operator", "coordinates"])
def test_log_joints_in_blocks_are_those_of_the_whole(monkeypatch, kind):
    rng = np.random.default_rng(5)
    H, w = rng.standard_normal((23, 4)), rng.standard_normal((9, 4))
    rows = {"dense": H, "sparse": sparse.csr_array(H), "operator": aslinearoperator(H), "coordinates": None}[kind]
    count = 4 if rows is None else 23
    weight, offset, y = rng.uniform(0.5, 2.0, count), rng.standard_normal(count), rng.integers(0, 5, count)
    weight[1] = 0.0 if kind == "dense" else weight[1]
    prior, x = GaussianFactor(0.3, 2.0, dim=4), w if rows is None else w @ H.T
    model = LatentLinearModel([prior, SiteFactor(rows, potentials.Poisson(y), weight, offset)])
    expected = np.sum(-0.5 * (w - 0.3) ** 2 / 2.0 - 0.5 * np.log(2.0 * np.pi * 2.0), axis=1)
    expected += np.sum(weight * potentials.Poisson(y).log_density(x + offset), axis=1)
    monkeypatch.setattr(log_joint, "ROWS", 5)
    monkeypatch.setattr(log_joint, "MOST", 11)
    np.testing.assert_allclose(LogJoint(model)(w), expected, rtol=1e-12)


def test_many_sites_are_checked_by_fewer_draws():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((9_000, 2))
    model = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X, potentials.Logit(rng.random(9_000) < 0.4))])
    found = infer(model, "gkl").diagnose(random_state=0)
    assert (found.n, found.verdict) == (1_000, "accurate")
    few = model.among([model.gaussians[0], SiteFactor(X[:300], model.sites[0].potential.select(slice(0, 300)))])
    assert infer(few, "gkl").diagnose(random_state=0).n == 4_000
