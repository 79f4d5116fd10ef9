"""Every argument of every public constructor and function: what it cannot be is a ValueError that names it."""

import inspect
import warnings
from importlib import import_module

import numpy as np
import pytest

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, linear, potentials, quadrature
from latlin.additive import AdditiveModel
from latlin.diagnostics import calibrate
from latlin.factor import FactorAnalysis
from latlin.gp import GaussianProcessRegressor
from latlin.hyper import Evaluation, Hyperparameter, Space, maximise
from latlin.mixture import BayesianGaussianMixture

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = X.sum(axis=1)
COUNTS = np.arange(3.0)
MODEL = LatentLinearModel([GaussianFactor(dim=3), SiteFactor(X, potentials.Logit(Y > 0))])
LINE = quadrature.Gaussian(0.0, 1.0)
BAD = {"a text": "a", "nothing": None, "less": -1, "no number": float("nan"), "a list": [], "an object": object()}


def square(x):
    return -(x[:, 0] ** 2)


def build(scale):
    prior = GaussianFactor(cov=scale**2, dim=3)
    return LatentLinearModel([prior, SiteFactor(X, potentials.Logit(Y > 0))])


def simulate(rng):
    return np.zeros(3), MODEL


def fit(model):
    return infer(model, "laplace")


def evaluate(values, before, slopes):
    return Evaluation(-((values["scale"] - 2.0) ** 2), None, infer(MODEL, "laplace"))


TABLE = {"y": Y, "t": X[:, 0], "g": np.resize(["a", "b", "c"], 12), "i": np.arange(12) // 4, "j": np.arange(12) % 4}
ADDITIVE = AdditiveModel("y ~ s(t, k=5) + (1 | g) + lattice(i, j)", hyperparameters="fixed").fit(TABLE)
LEARNT = linear.BayesianLinearRegression().fit(X, Y + RNG.standard_normal(12))
SPACE = Space([Hyperparameter("scale", 1.0)])


#: public name → arguments that it takes; those with defaults are spoilt as well
GOOD = {
    "potentials.AsymmetricLaplace": {"quantile": 0.3},
    "potentials.Beta": {"y": [0.2, 0.5], "precision": 2.0},
    "potentials.BetaBinomial": {"successes": COUNTS, "trials": 4.0, "precision": 2.0},
    "potentials.Binomial": {"successes": COUNTS, "trials": 4.0},
    "potentials.Cauchy": {},
    "potentials.Custom": {"log_density": lambda x: -(x**2)},
    "potentials.Exponential": {"time": [1.0, 2.0]},
    "potentials.Gamma": {"y": [1.0, 2.0], "shape": 2.0},
    "potentials.Gaussian": {},
    "potentials.GaussianMixture": {"weights": [0.5, 0.5], "locs": 0.0, "scales": [1.0, 2.0]},
    "potentials.GeneralisedNormal": {"shape": 1.5},
    "potentials.GeneralisedPoisson": {"y": COUNTS, "clustering": 0.2},
    "potentials.Horseshoe": {},
    "potentials.Huber": {},
    "potentials.Hurdle": {"base": potentials.Poisson(COUNTS), "probability": 0.2},
    "potentials.Interval": {"low": 0.0, "high": 1.0},
    "potentials.InverseGaussian": {"y": [1.0, 2.0], "shape": 2.0},
    "potentials.Laplace": {},
    "potentials.LogLogistic": {"time": [1.0, 2.0]},
    "potentials.LogNormal": {"y": [1.0, 2.0]},
    "potentials.Logistic": {},
    "potentials.Logit": {"y": [0, 1]},
    "potentials.NegativeBinomial": {"y": COUNTS, "dispersion": 0.5},
    "potentials.Ordinal": {"y": [0, 1], "cuts": [-0.5, 0.5]},
    "potentials.Poisson": {"y": COUNTS},
    "potentials.Probit": {"y": [0, 1]},
    "potentials.SpikeAndSlab": {"probability": 0.3},
    "potentials.Step": {"y": [0, 1], "eps": 0.1},
    "potentials.StudentT": {"df": 3.0},
    "potentials.Truncated": {"base": potentials.Gaussian(0.0, 1.0)},
    "potentials.Tweedie": {"y": [0.0, 2.0], "power": 1.5, "dispersion": 1.0},
    "potentials.Weibull": {"time": [1.0, 2.0]},
    "potentials.ZeroInflated": {"base": potentials.Poisson(COUNTS), "probability": 0.2},
    "priors.Beta": {"a": 1.0, "b": 2.0},
    "priors.Correlation": {"shape": 2.0},
    "priors.Exponential": {"scale": 1.0},
    "priors.Gamma": {"shape": 2.0, "rate": 1.0},
    "priors.HalfCauchy": {"scale": 1.0},
    "priors.HalfNormal": {"scale": 1.0},
    "priors.HalfStudentT": {"df": 3.0, "scale": 1.0},
    "priors.InverseGamma": {"shape": 2.0, "scale": 1.0},
    "priors.LogNormal": {"mean": 0.0, "sd": 1.0},
    "priors.PenalisedComplexity": {"upper": 1.0, "probability": 0.1},
    "priors.Uniform": {"low": 0.0, "high": 1.0},
    "covariances.Banded": {"bandwidth": 1},
    "covariances.BlockDiagonal": {"blocks": [[0], [1, 2]]},
    "covariances.Chevron": {"rank": 1},
    "covariances.LowRank": {"rank": 1},
    "covariances.Sparse": {"pattern": np.triu(np.ones((3, 3)))},
    "covariances.Subspace": {"rank": 1},
    "additive.AR1": {"column": "t"},
    "additive.BYM2": {"column": "t"},
    "additive.Besag": {"column": "t"},
    "additive.Group": {"column": "t"},
    "additive.Lattice": {"row": "i", "column": "j"},
    "additive.RandomWalk": {"column": "t"},
    "additive.Seasonal": {"column": "t", "period": 4},
    "additive.Smooth": {"column": "t"},
    "additive.Spline": {"column": "t"},
    "GaussianFactor": {"dim": 3},
    "SiteFactor": {"H": X, "potential": potentials.Logit(Y > 0)},
    "Constraint": {"A": [1.0, 1.0, 1.0]},
    "LatentLinearModel": {"factors": MODEL.gaussians + MODEL.sites},
    "infer": {"model": MODEL},
    "compare": {"model": MODEL, "engines": ("laplace",)},
    "load": {"path": "nowhere.latlin"},
    "maximise_evidence": {"build": build, "start": {"scale": 1.0}, "engine": "laplace"},
    "integrate_evidence": {"build": build, "start": {"scale": 1.0}, "engine": "laplace"},
    "quadrature.Gaussian": {},
    "quadrature.GaussianMixture": {"weights": [1.0], "means": [[0.0]], "covs": [[[1.0]]]},
    "quadrature.Uniform": {},
    "quadrature.BayesianQuadrature": {"measure": LINE},
    "quadrature.GaussianQuadratureGradient": {"log_joint": square},
    "quadrature.importance_sampling": {"f": square, "measure": LINE, "proposal": LINE, "n": 5},
    "quadrature.integrate": {"f": square, "measure": LINE, "budget": 4},
    "quadrature.monte_carlo": {"f": square, "measure": LINE, "n": 5},
    "quadrature.score_gradient": {"log_joint": square, "mean": [0.0], "cov": [[1.0]], "samples": 5},
    "quadrature.subsample": {"data": X, "k": 3},
    "design.SequentialDesign": {"filters": np.eye(3), "prior": potentials.Laplace(np.zeros(3)), "noise_variance": 0.1},
    "design.finite_differences": {"shape": 4},
    "design.wavelet_transform": {"shape": 4},
    "diagnostics.brier_score": {"y": [0, 1], "probability": [0.2, 0.5]},
    "diagnostics.calibrate": {"estimator": fit, "simulate": simulate, "n_runs": 1, "n_draws": 3},
    "diagnostics.crps_draws": {"y": [0.0, 1.0], "draws": X[:5, :2]},
    "diagnostics.crps_normal": {"y": [0.0, 1.0], "mean": 0.0, "std": 1.0},
    "diagnostics.interval_score": {"y": [0.0, 1.0], "low": [0.0, 0.0], "high": [1.0, 2.0], "coverage": 0.9},
    "diagnostics.log_score": {"y": [0, 1], "probability": [0.2, 0.5]},
    "diagnostics.reliability_curve": {"happened": [0, 1, 1], "probability": [0.1, 0.6, 0.9], "bins": 2},
    "diagnostics.smooth_log_weights": {"log_weights": Y},
    "diagnostics.summarise_weights": {"log_weights": Y},
    "datasets.correlated_logistic": {"dim": 2, "n_train": 3, "n_test": 3},
    "datasets.load_dataset": {"name": "longley"},
    "datasets.read_table": {"path": "rows.csv"},
    "factor.choose_components": {"estimator": FactorAnalysis(), "X": X, "candidates": [1]},
    "gp.Inducing": {},
    "gp.Vecchia": {},
    "gp.Grid": {},
    "gp.StateSpace": {},
    "hyper.Hyperparameter": {"name": "scale", "start": 1.0},
    "hyper.Space": {"members": SPACE.members},
    "hyper.averaged_posterior": {"learnt": maximise(SPACE, evaluate)},
    "hyper.integrate": {"space": SPACE, "evaluate": evaluate},
    "hyper.maximise": {"space": SPACE, "evaluate": evaluate},
    "plot.calibration_ranks": {"calibration": calibrate(fit, simulate, n_runs=3, n_draws=9)},
    "plot.clusters": {"mixture": BayesianGaussianMixture(2, random_state=0).fit(X), "X": X},
    "plot.curve": {"model": ADDITIVE, "term": "s(t)"},
    "plot.densities": {"model": LEARNT},
    "plot.evidence": {"values": [1.0, 2.0], "log_evidence": [-3.0, -2.0]},
    "plot.field": {"model": ADDITIVE, "term": "lattice(i, j)"},
    "plot.forest": {"coefficients": LEARNT},
    "plot.intervals": {"y": [0.0, 1.0], "interval": [[-1.0, 1.0], [0.0, 2.0]]},
    "plot.ladder": {"comparison": latlin.compare(MODEL, ("laplace", "gkl"))},
    "plot.loadings": {"model": FactorAnalysis(1, noise="isotropic").fit(X)},
    "plot.marginals": {"posterior": infer(MODEL, "laplace")},
    "plot.pit": {"residuals": Y},
    "plot.process": {"model": GaussianProcessRegressor(optimizer=None).fit(X, Y), "X": X},
    "plot.reliability": {"happened": [0, 1, 1], "probability": [0.1, 0.6, 0.9]},
    "plot.shrinkage": {"model": ADDITIVE, "group": "g", "raw": [0.0, 1.0, 2.0]},
    "plot.trace": {"fitted": infer(MODEL, "gkl")},
    "report.assess": {"estimator": linear.BayesianLinearRegression(), "X": X, "y": Y, "folds": 2},
}
#: whatever is true or false
SWITCHES = {"verbose", "diagnose", "log_concave", "super_gaussian", "smooth", "cyclic", "intercept", "correlated"}
SWITCHES |= {"noise", "sort", "logarithmic", "curvature", "normalised", "label"}
SWITCHES |= {"centred", "labels_first", "noisy", "normalise_prior", "advance"}


def public(name):
    room, _, own = name.rpartition(".")
    return getattr(import_module(f"latlin.{room}") if room else latlin, own)


CASES = [
    (name, option)
    for name in GOOD
    for option, about in inspect.signature(public(name)).parameters.items()
    if option not in SWITCHES and about.kind is not about.VAR_KEYWORD
]


def complaint(name, options):
    """What is said against these arguments; anything but a ValueError, or a file that is not there, gets through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            public(name)(**options)
    except ValueError as error:
        return str(error)
    except FileNotFoundError:
        return None
    return None


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Files that are asked for are written there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf8")


@pytest.mark.parametrize(("name", "option"), CASES)
def test_a_wrong_argument_is_named(name, option):
    for kind, bad in BAD.items():
        said = complaint(name, GOOD[name] | {option: bad})
        assert said is None or option in said, f"{option} is {kind}: {said}"


PAIR = np.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: latlin.additive.RandomWalk("t", PAIR), "order of a RandomWalk must be 1 or 2, got array"),
        (lambda: latlin.additive.Smooth("t", PAIR), "smoothness must be 0.5, 1.5 or 2.5, got array"),
        (
            lambda: latlin.integrate_evidence(build, {"scale": 1.0}, method=PAIR),
            "method must be one of 'auto', 'quick'",
        ),
        (lambda: Hyperparameter("scale", 0.5, support=PAIR), "'scale' must start between 1 and 2, got 0.5"),
        (lambda: GaussianFactor(precision=PAIR, dim=3), "differ in length: {'precision': 2, 'dim': 3}"),
        (lambda: latlin.plot.field(ADDITIVE, ""), "term must name a term of the model, got ''"),
        (
            lambda: latlin.plot.field(ADDITIVE, "g", {"a": 1.0, "b": 2.0, "c": 3.0}),
            r"places must hold \(x, y\) of each",
        ),
        (lambda: latlin.plot.field(ADDITIVE, "g", {"z": PAIR}), r"places must hold \(x, y\) of areas such as 'a'"),
        (lambda: latlin.plot.forest(ADDITIVE, shift=10**30), "shift must be a number of at least -1e.06"),
        (lambda: latlin.report.assess(LEARNT, np.datetime64("2026-01-01"), Y), "X and y must have as many rows"),
        (
            lambda: latlin.report.assess(LEARNT, X, Y, folds=2, random_state=2**40),
            r"random_state must be below 2\*\*32",
        ),
    ],
)
def test_arrays_and_extremes_in_place_of_one_option_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
