"""Evidence maximisation: gradients by finite differences for every engine and family, and maxima that are maxima."""

import numpy as np
import pytest
from sklearn.base import clone

from latlin.engines import AffineKL, ExpectationPropagation, GaussianKL, Laplace, LocalBound
from latlin.hyper.space import Objective
from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)
from latlin.linear._fitting import settle_hyperparameters
from latlin.linear._learning import Unknowns, evaluation
from latlin.numerics.alerts import ConvergenceWarning
from latlin.priors import Flat
from linear_data import responses

X, Y = responses(n=25, d=2)
ENGINES = {
    "laplace": Laplace(tol=1e-9),
    "lvb": LocalBound(tol=1e-9),
    "ep": ExpectationPropagation(tol=1e-10),
    "gkl": GaussianKL(tol=1e-9),
    "diagonal": GaussianKL(covariance="diagonal", tol=1e-9),
    "ai-kl": AffineKL(base="skew-normal", tol=1e-7),
}
FREE = {"noise_scale": "auto", "df": "auto"}
FAMILIES = {
    "linear": (BayesianLinearRegression(), "numbers", set()),
    "linear, ard": (BayesianLinearRegression(ard=True), "numbers", set()),
    "logistic": (BayesianLogisticRegression(), "labels", set()),
    "probit": (BayesianProbitRegression(), "labels", {"lvb"}),
    "poisson": (BayesianPoissonRegression(), "counts", {"lvb"}),
    "ordinal": (BayesianOrdinalRegression(), "three", {"lvb"}),
    "ordinal, logit": (BayesianOrdinalRegression(link="logit"), "three", {"lvb"}),
    "student-t": (RobustRegression(df="auto"), "outliers", set()),
    "laplace noise": (RobustRegression("laplace"), "outliers", {"laplace"}),
    "cauchy": (RobustRegression("cauchy"), "outliers", set()),
    "huber": (RobustRegression("huber", threshold="auto"), "outliers", {"laplace"}),
    "sparse laplace": (SparseRegression(), "numbers", {"laplace"}),
    "sparse student-t": (SparseRegression("student-t", prior_df="auto"), "numbers", set()),
    "sparse power": (SparseRegression("generalised-normal", prior_shape="auto"), "numbers", {"laplace"}),
    "sparse horseshoe": (SparseRegression("horseshoe"), "numbers", {"laplace", "lvb", "diagonal"}),
    "spike and slab": (SparseRegression("spike-and-slab"), "numbers", {"lvb", "diagonal"}),
}
PAIRS = [
    (engine, family)
    for family, (_, _, without) in FAMILIES.items()
    for engine in ENGINES
    if engine not in without and (engine != "ai-kl" or family in ("logistic", "sparse laplace"))
]


def problem_of(family):
    model, response, _ = FAMILIES[family]
    y = Y[response]
    if hasattr(model, "_codes"):
        model.classes_ = np.unique(y)
        y = model._codes(y)[0]
    (problem,) = model._problems(X, [np.asarray(y, float)], None, None)
    return problem, model


def search_of(problem, engine, values, free):
    unknowns = Unknowns(problem, values, free, Flat())
    return Objective(unknowns.space, evaluation(problem, engine, unknowns), volume=False)


@pytest.mark.parametrize(("engine", "family"), PAIRS)
def test_the_gradient_is_that_of_finite_differences(engine, family):
    problem, model = problem_of(family)
    values, free = settle_hyperparameters(problem, model._given(), model.ard)
    search = search_of(problem, ENGINES[engine], values, free)
    theta = search.space.start + 0.1
    _, gradient = search.with_gradient(theta)
    step = 1e-3 if engine == "ai-kl" else 1e-4
    numeric = [
        (search.at(theta + step * unit).log_evidence - search.at(theta - step * unit).log_evidence) / (2.0 * step)
        for unit in np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=2e-3 if engine == "ai-kl" else 1e-4)


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "ordinal", "student-t", "sparse laplace"])
def test_what_is_found_is_a_maximum_of_the_reported_evidence(family):
    model, response, _ = FAMILIES[family]
    fitted = clone(model).set_params(hyperparameters="maximise", priors=Flat()).fit(X, Y[response])
    best, values = fitted.log_evidence_, fitted._fits[0].values
    (problem, _) = problem_of(family)
    search = search_of(problem, GaussianKL(tol=1e-9), values, list(values))
    theta = search.space.start
    assert search.at(theta).log_evidence == pytest.approx(best, abs=1e-6)
    low, high = search.space.box.T
    for unit in np.eye(len(theta)):
        for step in (-0.05, 0.05):
            assert search.at(np.clip(theta + step * unit, low, high)).log_evidence <= best + 1e-7


def test_relevance_determination_tells_features_apart():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 5))
    y = 2.0 * Z[:, 0] + 0.3 * rng.standard_normal(80)
    model = BayesianLinearRegression(ard=True, hyperparameters="maximise", priors=Flat()).fit(Z, y)
    assert model.prior_scale_.shape == (5,)
    assert model.prior_scale_[0] > 10.0 * model.prior_scale_[1:].max()
    plain = BayesianLinearRegression(hyperparameters="maximise").fit(Z, y)
    assert model.log_evidence_ > plain.log_evidence_
    with pytest.raises(ValueError, match="needs prior_scale='auto'"):
        BayesianLinearRegression(ard=True, prior_scale=1.0).fit(Z, y)


def test_a_vector_of_prior_scales_is_used_feature_by_feature():
    Z, y = X, Y["numbers"]
    model = BayesianLinearRegression(prior_scale=[1e-4, 1.0], hyperparameters="maximise").fit(Z, y)
    assert abs(model.coef_[0]) * Z[:, 0].std() < 1e-3 < abs(model.coef_[1]) * Z[:, 1].std()
    exact = model.log_evidence_
    searched = BayesianLinearRegression(prior_scale=[1e-4, 1.0], engine="gkl", hyperparameters="maximise").fit(Z, y)
    assert searched.log_evidence_ == pytest.approx(exact, abs=1e-6)
    assert searched.noise_scale_ == pytest.approx(model.noise_scale_, rel=1e-3)


def test_a_point_estimate_has_no_evidence_to_maximise():
    with pytest.raises(ValueError, match="engine 'map' has none"):
        BayesianLogisticRegression(engine="map").fit(X, Y["labels"])


def test_a_search_that_stops_early_says_so(monkeypatch):
    monkeypatch.setattr("latlin.hyper.optimum.MOST", 2)
    with pytest.warns(ConvergenceWarning, match="in prior_scale; give some of them a value"):
        BayesianLogisticRegression(engine="laplace").fit(X, Y["labels"])


@pytest.mark.parametrize(
    ("model", "response"), [(RobustRegression("cauchy"), "outliers"), (BayesianOrdinalRegression(), "three")]
)
def test_affine_kl_learns_scales_in_every_family(model, response):
    """The curvature of held fits moves an affine density with its prior."""
    engine = AffineKL(base="skew-normal", tol=1e-3)
    fits = [clone(model).set_params(engine=e, hyperparameters="maximise") for e in (engine, "gkl")]
    affine, gaussian = (fit.fit(X[:12, :1], Y[response][:12]) for fit in fits)
    assert affine.posterior_.engine == "ai-kl"
    assert gaussian.log_evidence_ - 1e-3 < affine.log_evidence_ < gaussian.log_evidence_ + 1.0
