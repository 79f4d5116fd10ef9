"""Every option of every engine and estimator: what it cannot be is a ValueError that names it and what came."""

import functools
import inspect
import warnings

import numpy as np
import pytest

from latlin import (
    GaussianFactor,
    LatentLinearModel,
    SiteFactor,
    engines,
    infer,
    linear,
    maximise_evidence,
    potentials,
    quadrature,
)
from latlin.additive import AdditiveModel
from latlin.distributed.blocks import LocalBlocks
from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    MatrixFactorization,
    MixedFactorAnalysis,
    NoisyICA,
)
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.options import (
    check_choice,
    check_choices,
    check_jobs,
    check_number,
    check_pair,
    file_path,
    real_array,
)

X = np.random.default_rng(0).standard_normal((12, 3))
Y = X.sum(axis=1)
COUNTS = np.round(np.abs(Y))
SHARES = (1.0 + COUNTS) / 9.0
TABLE = {"y": Y, "x": X[:, 0], "g": np.resize(["a", "b", "c"], 12)}
MODEL = LatentLinearModel([GaussianFactor(dim=3), SiteFactor(X, potentials.Logit(Y > 0))])
ENGINES = [
    "GaussianKL",
    "ExpectationPropagation",
    "LocalBound",
    "MAP",
    "Laplace",
    "MeanField",
    "AffineKL",
    "EllipticalKL",
]
ESTIMATORS = {
    linear.BayesianLinearRegression: Y,
    linear.BayesianLogisticRegression: Y > 0,
    linear.BayesianProbitRegression: Y > 0,
    linear.BayesianOrdinalRegression: Y > 0,
    linear.BayesianSoftmaxRegression: Y > 0,
    linear.BayesianMultinomialProbitRegression: Y > 0,
    linear.SparseRegression: Y,
    linear.RobustRegression: Y,
    linear.BayesianQuantileRegression: Y,
    linear.BayesianPoissonRegression: COUNTS,
    linear.BayesianCountRegression: COUNTS,
    linear.BayesianBinomialRegression: COUNTS,
    linear.BayesianGammaRegression: 1.0 + COUNTS,
    linear.BayesianBetaRegression: SHARES,
    linear.BayesianSurvivalRegression: 1.0 + COUNTS,
    AdditiveModel: None,
    GaussianProcessRegressor: Y,
    GaussianProcessClassifier: Y > 0,
    BayesianGaussianMixture: None,
    FactorAnalysis: None,
    BinaryFactorAnalysis: None,
    GroupFactorAnalysis: None,
    MatrixFactorization: None,
    MixedFactorAnalysis: None,
    NoisyICA: None,
}
#: what these cannot do without
NEEDED = {AdditiveModel: {"formula": "y ~ x"}}
FIT_WITH = {linear.BayesianBinomialRegression: {"trials": np.full(12, 9.0)}}
BAD = {"a text": "a", "a list": [], "an object": object(), "nothing": None, "no number": float("nan"), "less": -1}
#: whatever is true or false
SWITCHES = {"verbose", "warm_start", "ard", "fit_intercept", "standardise", "optimise_shape", "normalise_y", "rotate"}
SWITCHES |= {"prune", "learn_shape", "copy", "random_state", "engine", "kernel"}


ALL = [
    pytest.param(cls, option, id=f"{cls.__name__}-{option}")
    for cls in [*(getattr(engines, name) for name in ENGINES), *ESTIMATORS]
    for option in inspect.signature(cls).parameters
    if option not in SWITCHES
]


def complaint(cls, options):
    """What a fit with these options says against them; anything but a ValueError gets through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = cls(**NEEDED.get(cls, {}) | options)
            if cls is AdditiveModel:
                made.fit(TABLE)
            elif cls in ESTIMATORS:
                made.fit(X, ESTIMATORS[cls], **FIT_WITH.get(cls, {}))
            else:
                infer(MODEL, made)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("cls", "option"), ALL)
def test_a_bad_option_is_named(cls, option):
    for bad in BAD.values():
        if option == "n_jobs" and bad == -1:
            continue  # all processors
        said = complaint(cls, {option: bad})
        assert said is None or option in said, f"{option}={bad!r:.20}: {said}"


@pytest.mark.parametrize("cls", [c for c in ESTIMATORS if "random_state" in inspect.signature(c).parameters])
def test_a_negative_seed_is_named(cls):
    said = complaint(cls, {"random_state": -1})
    assert said is None or "random_state must be None, an int of at least 0" in said


CASES = {
    "args": (lambda: potentials.Custom(lambda x: -(x**2), args=3), "args must be a sequence"),
    "checkpoint number": (lambda: infer(MODEL, "gkl", checkpoint=3), "checkpoint must be the path of a file, got 3"),
    "checkpoint empty": (lambda: infer(MODEL, "gkl", checkpoint=""), "checkpoint must be the path of a file, got ''"),
    "checkpoint folder": (lambda: infer(MODEL, "gkl", checkpoint="."), "checkpoint must be the path of a file"),
    "ragged H": (lambda: SiteFactor([[1.0], [1.0, 2.0]], potentials.Logit([1, 0])), "SiteFactor H must hold numbers"),
    "ragged mean": (lambda: GaussianFactor([[1.0], [1.0, 2.0]]), "GaussianFactor mean must hold numbers"),
    "prior_scale": (
        lambda: linear.BayesianLinearRegression(prior_scale=1e-300).fit(X, Y),
        "prior_scale must be at least 1e-140, got 1e-300",
    ),
    "targets": (lambda: linear.RobustRegression().fit(X, 1e-300 * Y), "y must hold a number of at least 1e-140"),
    "weights": (
        lambda: linear.BayesianLogisticRegression().fit(X, Y > 0, sample_weight=np.full(12, 1e30)),
        "sample_weight must add up to at most",
    ),
    "site weight": (
        lambda: SiteFactor(X, potentials.Logit(Y > 0), weight=1e30),
        "SiteFactor weight must add up to at most",
    ),
    "mean_prior": (
        lambda: BayesianGaussianMixture(2, mean_prior=[np.nan] * 3).fit(X),
        "mean_prior must be finite, got 3 NaN",
    ),
    "measure": (lambda: quadrature.integrate(lambda x: x[:, 0], None, 12), "measure must be a Gaussian"),
    "budget": (
        lambda: quadrature.integrate(lambda x: x[:, 0], quadrature.Gaussian(0.0, 1.0), "a"),
        "budget must be an integer of at least 1, got 'a'",
    ),
    "integrand": (lambda: quadrature.integrate(3, quadrature.Gaussian(0.0, 1.0), 9), "f must be callable, got 3"),
}

PAIR = np.array([1.0, 2.0])
NAMED = ("engine", "optimizer", "multi_class", "approximation", "kernel", "method")


@pytest.mark.parametrize(
    ("cls", "option"),
    [
        pytest.param(cls, option, id=f"{cls.__name__}-{option}")
        for cls in ESTIMATORS
        for option in inspect.signature(cls).parameters
        if option in NAMED
    ],
)
def test_an_array_is_no_name(cls, option):
    others = {"method": "gradient"} if (cls, option) == (FactorAnalysis, "optimizer") else {}
    assert f"{option} must be" in complaint(cls, others | {option: PAIR})


DAYS = np.arange("2020-01-01", "2020-01-13", dtype="datetime64[D]")


def additive(changed=None, formula="y ~ x + (1 | g)", **options):
    fit = {name: options.pop(name) for name in ("checkpoint",) if name in options}
    return AdditiveModel(formula, **options).fit(TABLE | (changed or {}), **fit)


def prior_of(scale):
    return LatentLinearModel([GaussianFactor(cov=scale**2, dim=3), SiteFactor(X, potentials.Logit(Y > 0))])


def integral(**options):
    return quadrature.BayesianQuadrature(quadrature.Gaussian(0.0, 1.0), **options).integrate(lambda x: x[:, 0], 5)


@functools.cache
def fitted(cls):
    """With fixed hyperparameters, as answers are asked of it."""
    return cls(hyperparameters="fixed").fit(X, ESTIMATORS[cls], **FIT_WITH.get(cls, {}))


CASES |= {
    "quantiles without an end": (
        lambda: fitted(linear.BayesianPoissonRegression).predict_quantiles(X, [0.5, 10**400]),
        "quantiles must hold probabilities strictly between 0 and 1",
    ),
    "labels beside fewer rows": (
        lambda: fitted(linear.BayesianLogisticRegression).quantile_residuals(X, np.ones(0, bool)),
        "y must have shape (12,., one label per row, got shape (0,",
    ),
    "texts in place of labels": (
        lambda: fitted(linear.BayesianLogisticRegression).quantile_residuals(X, np.array([1.0, "a"] * 6, object)),
        "y has labels that were not in the training data",
    ),
    "rows beyond every rate": (
        lambda: fitted(linear.BayesianPoissonRegression).predict(1e18 * X),
        "X, with its offset, lies too far from the rows of the fit: the expected rate",
    ),
    "trials without a number": (
        lambda: fitted(linear.BayesianBinomialRegression).predict_interval(X, 0.9, trials=object()),
        "trials must hold numbers",
    ),
    "trials of other rows": (
        lambda: fitted(linear.BayesianBinomialRegression).predict_interval(X, 0.9, trials=np.ones((1, 12))),
        "trials must have shape (12,., one number per row",
    ),
    "tiny targets in blocks": (
        lambda: linear.BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(
            LocalBlocks.of(X, 1e-300 * Y, rows=5)
        ),
        "y must hold a number of at least 1e-140",
    ),
    "wide prior of robust coefficients": (
        lambda: linear.RobustRegression(prior_scale=1e30).fit(X, Y),
        "prior_scale or intercept_scale is too large for a fit, got 1e.30",
    ),
    "wide prior of several classes": (
        lambda: linear.BayesianSoftmaxRegression(prior_scale=1e30).fit(X, np.arange(12) % 3),
        "prior_scale or intercept_scale is too large for a fit, got 1e.30",
    ),
    "prior that no number holds": (
        lambda: linear.BayesianPoissonRegression(prior_scale=1e100).fit(X, COUNTS),
        "prior_scale must leave coefficients below 1e.70 in the units of X",
    ),
    "labels of two kinds": (
        lambda: linear.BayesianLogisticRegression().fit(X, np.array(["a", 1] * 6, dtype=object)),
        "y must hold labels of one kind, texts or numbers, got int and str",
    ),
    "missing labels": (
        lambda: linear.BayesianSoftmaxRegression().fit(X, np.array([None, "a"] * 6, dtype=object)),
        "y must hold labels of one kind, texts or numbers, got NoneType and str",
    ),
    "bytes in a list of labels": (
        lambda: GaussianProcessClassifier().fit(X, [b"a", b"b"] * 6),
        "y must hold labels of one kind, texts or numbers, got bytes",
    ),
    "labels of two kinds in a stream": (
        lambda: linear.BayesianProbitRegression().partial_fit(X, ["a", 1] * 6),
        "y must hold labels of one kind, texts or numbers, got int and str",
    ),
    "noise floor of factors": (
        lambda: FactorAnalysis(1, noise_floor=1e300).fit(X),
        "noise_floor must be a number of at least 0 and below 1, got 1e.300",
    ),
    "noise floor of mixed factors": (
        lambda: MixedFactorAnalysis(1, noise_floor=1.0).fit(X),
        "noise_floor must be a number of at least 0 and below 1, got 1.0",
    ),
    "degrees of freedom": (lambda: MixedFactorAnalysis(1, df=PAIR).fit(X), "df must be a number above 2, got array"),
    "rank of groups": (lambda: GroupFactorAnalysis(1, rank=PAIR).fit(X), "rank must be 'full' or an integer"),
    "kernel of an integral": (lambda: integral(kernel=PAIR), "kernel must be one of 'rbf'"),
    "mean of an integral": (lambda: integral(mean=PAIR), "mean must be one of 'constant', 'zero', got array"),
    "warp of an integral": (lambda: integral(warp=PAIR), "warp must be one of None, 'auto', 'log'"),
    "scores of an integral": (lambda: integral(acquisition=PAIR), "acquisition must be one of"),
    "lengths of an integral": (lambda: integral(hyperparameters=PAIR), "hyperparameters must be one of 'marginal'"),
    "step of a mixture": (
        lambda: BayesianGaussianMixture(2, step=PAIR, algorithm="natural").fit(X),
        "step must be one of 'robbins-monro'",
    ),
    "formula with a bar": (lambda: additive(formula="y ~ x | g"), "a group stands in parentheses and alone"),
    "formula with a huge number": (lambda: additive(formula="y ~ x + 1e400"), "cannot be evaluated"),
    "priors of a formula": (lambda: additive(priors=3), "priors must be a dict, got 3"),
    "checkpoint of a formula": (lambda: additive(checkpoint=3), "checkpoint must be the path of a file, got 3"),
    "seed of a formula": (lambda: additive(random_state=-1), "random_state must be None, an int of at least 0"),
    "dates in a formula": (lambda: additive({"x": DAYS}), "column 'x' must hold numbers, got datetime64"),
    "dates in a walk": (lambda: additive({"x": DAYS}, "y ~ rw1(x)"), "column 'x' must hold numbers, got datetime64"),
    "spans in a formula": (lambda: additive({"x": DAYS - DAYS[0]}), "column 'x' must hold numbers, got timedelta64"),
    "masked column": (
        lambda: additive({"x": np.ma.masked_array(X[:, 0], Y > 1)}),
        "column 'x' has 4 masked entries",
    ),
    "huge column": (lambda: additive({"x": 1e300 * Y}), "column 'x' must hold numbers of at most 1e.140"),
    "no rows asked": (
        lambda: additive(hyperparameters="fixed").predict({name: part[:0] for name, part in TABLE.items()}),
        "the table has no rows",
    ),
    "start text": (lambda: maximise_evidence(prior_of, {"scale": "a"}), "'scale'. must be a number, got 'a'"),
    "start too large": (
        lambda: maximise_evidence(prior_of, {"scale": 1e300}),
        "start must hold numbers that build can",
    ),
    "start of others": (lambda: maximise_evidence(prior_of, {"other": 1.0}), "start must name the parameters of build"),
    "complex integrand": (
        lambda: quadrature.integrate(lambda x: 1j * x[:, 0], quadrature.Gaussian(0.0, 1.0), 12),
        "the integrand must hold real numbers",
    ),
    "objects in y": (
        lambda: linear.BayesianLinearRegression().fit(X, np.array([{}] * 12)),
        "y must hold numbers, got {} at place 0",
    ),
    "objects in y of a process": (
        lambda: GaussianProcessRegressor().fit(X, np.array([{}] * 12)),
        "y must hold numbers, got {} at place 0",
    ),
    "huge X of factors": (lambda: FactorAnalysis(1).fit(1e300 * X), "X must hold numbers of at most 1e.140"),
    "huge X of a mixture": (lambda: BayesianGaussianMixture(2).fit(1e300 * X), "X must hold numbers of at most 1e.140"),
    "huge rows for factors": (
        lambda: FactorAnalysis(1).fit(X).score_samples(1e300 * X),
        "X must hold numbers of at most 1e.140",
    ),
    "huge rows for groups": (
        lambda: GroupFactorAnalysis(1, max_iter=5).fit(X, groups=["a", "a", "b"]).transform(1e300 * X),
        "X must hold numbers of at most 1e.140",
    ),
    "huge rows for a mixture": (
        lambda: BayesianGaussianMixture(2).fit(X).predict_proba(1e300 * X),
        "X must hold numbers of at most 1e.140",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_one_form_everywhere(name):
    action, message = CASES[name]
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        action()


def test_good_options_pass(tmp_path):
    assert check_number("a", np.float32(0.5), least=0.0, most=1.0) == 0.5
    assert check_choice("a", None, [None, "b"]) is None
    assert check_choices("a", "b", ["b", "c"]) == ("b",)
    assert check_choices("a", ["c", "b"], ["b", "c"]) == ("c", "b")
    assert check_pair("a", (1, 2.0), "") == (1.0, 2.0)
    assert check_jobs(-1) == -1
    assert file_path("a", tmp_path / "new") == tmp_path / "new"
    assert real_array("a", [1, 2]).tolist() == [1.0, 2.0]
