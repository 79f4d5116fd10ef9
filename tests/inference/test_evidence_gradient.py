"""Derivatives of the evidence against finite differences of re-fitted evidences, engine by family by covariance."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from latlin import (
    Constraint,
    GaussianFactor,
    LatentLinearModel,
    SiteFactor,
    engines,
    infer,
    maximise_evidence,
    potentials,
)
from latlin.inference.evidence.gradient import evidence_gradient

STEP = 3e-4
TIGHT = {
    "laplace": engines.Laplace(tol=1e-10),
    "lvb": engines.LocalBound(tol=1e-10, max_iter=3000),
    "ep": engines.ExpectationPropagation(tol=1e-11, sweeps=400),
    "ep-half": engines.ExpectationPropagation(tol=1e-11, power=0.5, sweeps=400),
    "gkl": engines.GaussianKL(tol=1e-9),
    "diagonal": engines.GaussianKL(covariance="diagonal", tol=1e-9, max_iter=2000),
    "chevron": engines.GaussianKL(covariance="chevron", rank=1, tol=1e-9, max_iter=2000),
    "mean-field": engines.MeanField(tol=1e-10, max_iter=3000),
    "ai-kl": engines.AffineKL(base="skew-normal", tol=1e-9),
}


class Problem:
    """A model whose parameters move along random directions: additive for means, locs and cuts, else logarithmic."""

    def __init__(self, family, cov="diag", n=6, d=3, coordinates=False, h_factor=False, seed=0):
        rng = np.random.default_rng(seed)
        self.d, self.n = d, d if coordinates else n
        self.family, self.coordinates, self.sparse = family, coordinates, cov == "scalar"
        self.X = None if coordinates else rng.normal(size=(self.n, d))
        spread = rng.normal(size=(d, d))
        covs = {"scalar": np.array(1.7), "diag": rng.uniform(0.5, 2.0, d), "full": spread @ spread.T + np.eye(d)}
        self.values = {"mean": 0.3 * rng.normal(size=d), "cov": covs[cov]} | self._sites(rng)
        self.weight, self.offset = rng.uniform(0.5, 1.5, self.n), 0.3 * rng.normal(size=self.n)
        if h_factor:
            self.R = rng.normal(size=(2, d))
            self.values |= {"mean1": rng.normal(size=2), "cov1": np.array([[1.0, 0.3], [0.3, 0.8]])}
        self.directions = {name: self._direction(name, value, rng) for name, value in self.values.items()}

    def _sites(self, rng):
        y = rng.normal(size=self.n)
        self.y = y > 0
        if self.family.startswith("ordinal"):
            self.y = np.arange(self.n) % 4
            return {"cuts": np.array([-1.0, 0.2, 1.1])}
        if self.family in ("logit", "poisson"):
            return {}
        found = {"loc": y, "scale": rng.uniform(0.6, 1.4, self.n)}
        shapes = {"student": ("df", 4.0), "normal-power": ("shape", 1.4), "normal-power-smooth": ("shape", 2.6)}
        if self.family in shapes:
            name, value = shapes[self.family]
            found[name] = value * rng.uniform(0.9, 1.1, self.n)
        return found

    @staticmethod
    def _direction(name, value, rng):
        if value.ndim == 2:
            half = rng.normal(size=value.shape)
            return half + half.T
        return (
            rng.normal(size=value.shape)
            if name[:4] in ("mean", "loc", "cuts")
            else value * rng.normal(size=value.shape)
        )

    def potential(self, v):
        makers = {
            "logit": lambda: potentials.Logit(self.y),
            "poisson": lambda: potentials.Poisson(self.y.astype(int)),
            "ordinal": lambda: potentials.Ordinal(self.y, v["cuts"], link="probit"),
            "ordinal-logit": lambda: potentials.Ordinal(self.y, v["cuts"], link="logit"),
            "gaussian": lambda: potentials.Gaussian(v["loc"], v["scale"]),
            "laplace": lambda: potentials.Laplace(v["loc"], v["scale"]),
            "logistic": lambda: potentials.Logistic(v["loc"], v["scale"]),
            "student": lambda: potentials.StudentT(v["df"], v["loc"], v["scale"]),
            "normal-power": lambda: potentials.GeneralisedNormal(v["shape"], v["loc"], v["scale"]),
            "normal-power-smooth": lambda: potentials.GeneralisedNormal(v["shape"], v["loc"], v["scale"]),
        }
        return makers[self.family]()

    def model(self, name=None, t=0.0):
        v = self.values if name is None else self.values | {name: self.values[name] + t * self.directions[name]}
        rows = sparse.csr_array(self.X) if self.sparse and self.X is not None else self.X
        factors = [
            GaussianFactor(v["mean"], v["cov"]),
            SiteFactor(rows, self.potential(v), weight=self.weight, offset=self.offset),
        ]
        if "mean1" in v:
            factors.insert(1, GaussianFactor(v["mean1"], v["cov1"], H=self.R))
        return LatentLinearModel(factors)

    def analytic(self, gradient, name):
        parts = {"mean": "d_mean", "cov": "d_cov", "mean1": "d_mean", "cov1": "d_cov"}
        if name in parts:
            found = getattr(gradient.gaussians[int(name.endswith("1"))], parts[name])
        else:
            found = gradient.sites[0][name]
        return float(np.sum(found * self.directions[name]))


def check(problem, engine, rtol=1e-5):
    """Each parameter along its direction; the perturbed fits start at the fit itself."""
    post = infer(problem.model(), engine)
    assert post.converged
    gradient = evidence_gradient(post)
    assert gradient.note == ""
    for name in problem.values:
        values = []
        for t in (-STEP, STEP):
            moved = infer(problem.model(name, t), engine, start=post)
            assert moved.converged
            values.append(moved.log_evidence)
        numeric = (values[1] - values[0]) / (2.0 * STEP)
        assert problem.analytic(gradient, name) == pytest.approx(numeric, rel=rtol, abs=rtol), name


CASES = [
    ("gkl", "logit", {}),
    ("gkl", "poisson", {"cov": "full"}),
    ("gkl", "ordinal", {"n": 9}),
    ("gkl", "ordinal-logit", {"n": 9, "cov": "scalar"}),
    ("gkl", "laplace", {"cov": "full", "n": 2}),
    ("gkl", "student", {"cov": "full", "coordinates": True}),
    ("gkl", "normal-power", {"cov": "scalar"}),
    ("gkl", "logistic", {"h_factor": True}),
    ("diagonal", "logistic", {"cov": "full"}),
    ("chevron", "student", {"cov": "diag"}),
    ("laplace", "logit", {"cov": "full", "coordinates": True}),
    ("laplace", "student", {"cov": "diag", "n": 2}),
    ("laplace", "student", {"cov": "full"}),
    ("laplace", "ordinal", {"cov": "full", "n": 9, "h_factor": True}),
    ("laplace", "normal-power-smooth", {"cov": "scalar"}),
    ("laplace", "gaussian", {"cov": "full", "n": 2}),
    ("lvb", "logit", {"cov": "full", "coordinates": True}),
    ("lvb", "laplace", {"cov": "diag"}),
    ("lvb", "student", {"cov": "full", "n": 2}),
    ("lvb", "normal-power", {"cov": "scalar"}),
    ("ep", "logit", {"cov": "full", "coordinates": True}),
    ("ep", "laplace", {"cov": "full", "n": 2}),
    ("ep", "student", {"cov": "diag"}),
    ("ep", "ordinal", {"cov": "scalar", "n": 9}),
    ("ep", "ordinal-logit", {"cov": "full", "n": 9}),
    ("ep-half", "logistic", {"cov": "diag", "h_factor": True}),
    ("ep-half", "normal-power", {"cov": "full", "coordinates": True}),
    ("mean-field", "student", {"cov": "full", "coordinates": True}),
    ("mean-field", "laplace", {"cov": "full", "coordinates": True}),
]


@pytest.mark.parametrize(("engine", "family", "options"), CASES)
def test_gradient_is_that_of_refitted_evidences(engine, family, options):
    check(Problem(family, **options), TIGHT[engine])


@pytest.mark.parametrize("family", ["logit", "laplace"])
def test_gradient_of_affine_independent_bounds(family):
    check(Problem(family, cov="diag", n=4, d=2), TIGHT["ai-kl"], rtol=1e-4)


def test_exact_evidence_of_a_gaussian_process_with_a_covariance_that_has_no_inverse():
    """log N(y | 0, K + σ²I): ½(ααᵀ − (K + σ²I)⁻¹), although K is singular to working precision."""
    x = np.linspace(0.0, 1.0, 25)
    k = np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.5**2) + 1e-12 * np.eye(25)
    y, noise = np.sin(4.0 * x), 0.2
    post = infer(LatentLinearModel([GaussianFactor(cov=k), SiteFactor(None, potentials.Gaussian(y, noise))]), "gkl")
    inverse = np.linalg.inv(k + noise**2 * np.eye(25))
    alpha = inverse @ y
    found = evidence_gradient(post).gaussians[0].d_cov
    np.testing.assert_allclose(found, 0.5 * (np.outer(alpha, alpha) - inverse), atol=1e-8 * np.abs(inverse).max())


def test_a_point_has_no_evidence_to_differentiate():
    with pytest.raises(ValueError, match="'map' gives none"):
        evidence_gradient(infer(Problem("logit").model(), "map"))


def test_low_rank_variances_are_refused():
    with pytest.raises(ValueError, match="variances='exact'"):
        evidence_gradient(infer(Problem("logit").model(), engines.LocalBound(variances="lanczos")))


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_a_fit_that_did_not_converge_is_said():
    post = infer(Problem("student").model(), engines.GaussianKL(max_iter=1))
    assert "did not converge" in evidence_gradient(post).note


@dataclasses.dataclass(frozen=True)
class Renamed:
    """An engine of the library under a user's name, with or without what its evidence makes of the sites."""

    engine: object
    keeps_term: bool = True
    name = "mine"

    def run(self, model, **options):
        post = self.engine.run(model, **options)
        return dataclasses.replace(
            post, engine=self.name, evidence_term=post.evidence_term if self.keeps_term else None
        )


@pytest.mark.parametrize("engine", ["laplace", "ep", "lvb", "gkl", "mean-field"])
def test_the_gradient_follows_the_posterior_and_not_the_name_of_its_engine(engine):
    model = Problem("logistic", cov="full").model()
    mine, own = (evidence_gradient(infer(model, e)) for e in (Renamed(TIGHT[engine]), TIGHT[engine]))
    for a, b in zip(mine.gaussians, own.gaussians, strict=True):
        np.testing.assert_array_equal(a.d_cov, b.d_cov)
    for a, b in zip(mine.sites, own.sites, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[name], b[name]) for name in b)


def test_a_posterior_without_an_evidence_term_is_refused():
    with pytest.raises(ValueError, match="engine 'mine' does not say how its evidence depends on the sites"):
        evidence_gradient(infer(Problem("logit").model(), Renamed(engines.Laplace(), keeps_term=False)))


def _prior(kind, mean, cov):
    precision = sparse.csr_array(np.linalg.inv(cov))
    walk = GaussianFactor([0.1, 0.2], precision=sparse.csr_array([[1.0, -1.0], [-1.0, 1.0]]), rank=1)
    return {
        "full": [GaussianFactor(mean, cov)],
        "variances": [GaussianFactor(mean, np.diag(cov).copy())],
        "precision": [GaussianFactor(mean, precision=precision)],
        "two": [GaussianFactor(mean, cov), GaussianFactor([0.1, -0.2], [2.0, 1.0])],
        "two with a precision": [GaussianFactor(mean, precision=precision), GaussianFactor(cov=2.0, dim=2)],
        "of projections": [GaussianFactor(mean, cov, H=np.array([[1.0, 0.5], [0.2, -1.0]])), GaussianFactor(dim=2)],
        "with a walk": [GaussianFactor(mean, cov, H=np.array([[1.0, 0.5], [0.2, -1.0]])), walk],
    }[kind]


@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep"])
@pytest.mark.parametrize(("normalise", "held"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    "kind", ["full", "variances", "precision", "two", "two with a precision", "of projections", "with a walk"]
)
def test_constraints_and_what_normalises_a_prior_count(kind, normalise, held, engine):
    """Means and covariances of a prior that is normalised as a whole, on all of space or on a part of it."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(5, 2)), np.arange(5) % 2
    about, cov = np.array([0.5, 0.3]), np.array([[1.7, 0.5], [0.5, 3.0]])
    constraints = [Constraint([1.0, 0.7], 0.4)] if held else []

    def fit(mean, cov):
        factors = [*_prior(kind, mean, cov), SiteFactor(X, potentials.Logit(y))]
        return infer(LatentLinearModel(factors, constraints, normalise), TIGHT[engine])

    found = evidence_gradient(fit(about, cov)).gaussians[0]
    step, turn = STEP * np.array([1.0, -0.4]), STEP * np.array([[1.0, 0.3], [0.3, -0.5]])
    moved = fit(about + step, cov).log_evidence - fit(about - step, cov).log_evidence
    assert 2.0 * found.d_mean @ step == pytest.approx(moved, abs=1e-4 * STEP)
    if "precision" not in kind:
        spread = fit(about, cov + turn).log_evidence - fit(about, cov - turn).log_evidence
        ours = turn if found.d_cov.ndim == 2 else np.diag(turn)
        assert 2.0 * np.sum(found.d_cov * ours) == pytest.approx(spread, abs=1e-4 * STEP)


def test_a_scale_of_one_factor_of_a_normalised_prior_is_learnt():
    """N(0, 1) N(0, s²), normalised, is N(0, s²/(1 + s²))."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    sites = SiteFactor(X, potentials.Gaussian(X @ [0.5, -0.6] + 0.1 * rng.normal(size=40), 0.1))

    def two(scale):
        return LatentLinearModel([GaussianFactor(dim=2), GaussianFactor(cov=scale**2, dim=2), sites], (), True)

    def one(scale):
        return LatentLinearModel([GaussianFactor(cov=scale**2 / (1.0 + scale**2), dim=2), sites])

    found, truth = (maximise_evidence(build, {"scale": 2.0}, engine="exact") for build in (two, one))
    assert found.parameters["scale"] == pytest.approx(truth.parameters["scale"], rel=1e-4)
    assert found.log_evidence == pytest.approx(truth.log_evidence, abs=1e-8)
