"""Estimators of counts, shares, amounts, times and quantiles: gradients, invariances, predictions, what they say."""

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.base import clone

import latlin
from latlin.engines import ExpectationPropagation, GaussianKL, Laplace
from latlin.hyper.space import Objective
from latlin.linear import (
    BayesianBetaRegression,
    BayesianBinomialRegression,
    BayesianCountRegression,
    BayesianGammaRegression,
    BayesianPoissonRegression,
    BayesianQuantileRegression,
    BayesianSurvivalRegression,
    SparseRegression,
)
from latlin.linear._fitting import settle_hyperparameters
from latlin.linear._learning import Unknowns, evaluation
from latlin.linear._regression import Tried
from latlin.numerics.alerts import MisfitWarning
from latlin.priors import Flat

N = 50
rng = np.random.default_rng(7)
X = rng.standard_normal((N, 2)) * [1.0, 3.0] + [0.0, 2.0]
ETA = 0.6 * X[:, 0] - 0.2 * (X[:, 1] - 2.0)
TRIALS = rng.integers(3, 12, N).astype(float)
WEIGHT = rng.integers(0, 3, N).astype(float)
OFFSET = 0.3 * rng.standard_normal(N)
MEAN = np.exp(1.0 + ETA)
Y = {
    "counts": rng.poisson(MEAN * rng.gamma(2.0, 0.5, N)).astype(float),
    "numbers": 3.0 + ETA + rng.standard_normal(N),
    "zeros": rng.poisson(MEAN * rng.gamma(2.0, 0.5, N)) * (rng.random(N) < 0.7),
    "amounts": MEAN * rng.gamma(3.0, 1.0 / 3.0, N),
    "scattered": np.column_stack([rng.binomial(TRIALS.astype(int), rng.beta(1.0, np.exp(-ETA))), TRIALS]),
    "wet": MEAN * rng.gamma(3.0, 1.0 / 3.0, N) * (rng.random(N) < 0.8),
    "shares": rng.beta(4.0 / (1.0 + np.exp(-ETA)), 4.0 / (1.0 + np.exp(ETA))),
    "times": np.column_stack([MEAN * rng.weibull(1.5, N), rng.random(N) < 0.7]),
    "successes": np.column_stack([rng.binomial(TRIALS.astype(int), 1.0 / (1.0 + np.exp(-ETA))), TRIALS]),
}
CASES = {
    "negative-binomial": (BayesianCountRegression("negative-binomial"), "counts"),
    "generalised-poisson": (BayesianCountRegression("generalised-poisson"), "counts"),
    "zero-inflated-poisson": (BayesianCountRegression("zero-inflated-poisson", engine="laplace"), "zeros"),
    "zero-inflated-negative-binomial": (
        BayesianCountRegression("zero-inflated-negative-binomial", engine="laplace"),
        "zeros",
    ),
    "hurdle-poisson": (BayesianCountRegression("hurdle-poisson", engine="laplace"), "zeros"),
    "hurdle-negative-binomial": (BayesianCountRegression("hurdle-negative-binomial", engine="laplace"), "zeros"),
    "quantile": (BayesianQuantileRegression(0.7), "numbers"),
    "binomial": (BayesianBinomialRegression(), "successes"),
    "binomial, probit": (BayesianBinomialRegression(link="probit"), "successes"),
    "binomial, cloglog": (BayesianBinomialRegression(link="cloglog"), "successes"),
    "gamma": (BayesianGammaRegression(), "amounts"),
    "inverse-gaussian": (BayesianGammaRegression("inverse-gaussian"), "amounts"),
    "tweedie": (BayesianGammaRegression("tweedie"), "wet"),
    "beta": (BayesianBetaRegression(), "shares"),
    "beta-binomial": (BayesianBinomialRegression("beta-binomial"), "scattered"),
    "weibull": (BayesianSurvivalRegression(), "times"),
    "exponential": (BayesianSurvivalRegression("exponential"), "times"),
    "log-logistic": (BayesianSurvivalRegression("log-logistic"), "times"),
    "log-normal": (BayesianGammaRegression("log-normal"), "amounts"),
}
ENGINES = {"laplace": Laplace(tol=1e-10), "ep": ExpectationPropagation(tol=1e-10), "gkl": GaussianKL(tol=1e-9)}


@pytest.fixture(params=CASES)
def case(request):
    model, response = CASES[request.param]
    # averages over hyperparameters have tests of their own
    return clone(model).set_params(hyperparameters="maximise", priors=Flat()), Y[response]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_gradient_of_the_evidence_is_that_of_finite_differences(case, engine):
    model, y = case
    if engine == "gkl" and model.engine == "laplace" and model.family != "zero-inflated-poisson":
        pytest.skip("the same slopes by slow quadrature: one such family is enough")
    if engine == "laplace" and isinstance(model, BayesianQuantileRegression):
        pytest.skip("a kink has no Laplace approximation")
    model.family_ = getattr(model, "family", "")
    (problem,) = model._problems(X, [y], None, OFFSET)
    values, free = settle_hyperparameters(problem, model._given(), False)
    unknowns = Unknowns(problem, values, free, Flat())
    search = Objective(unknowns.space, evaluation(problem, ENGINES[engine], unknowns), volume=False)
    theta = unknowns.space.start + 0.1
    _, gradient = search.with_gradient(theta)
    step = 1e-4
    numeric = [
        (search.at(theta + step * u).log_evidence - search.at(theta - step * u).log_evidence) / (2 * step)
        for u in np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


def test_what_is_learnt_is_a_maximum_of_the_evidence(case):
    model, y = case
    fitted = clone(model).set_params(hyperparameters="maximise", priors=Flat()).fit(X, y)
    best, values = fitted.log_evidence_, fitted._fits[0].values
    (problem,) = model._problems(X, [y], None, None)
    engine = ENGINES["gkl" if model.engine == "auto" else model.engine]
    for name, value in values.items():
        for factor in (0.9, 1.1):
            moved = values | {name: np.asarray(value) * factor}
            assert engine.run(problem.model(moved)).log_evidence <= best + 1e-6


def test_weights_are_repeated_rows_and_rows_of_weight_zero_do_not_count(case):
    model, y = case
    model.set_params(standardise=False)
    weighted = clone(model).fit(X, y, sample_weight=WEIGHT, offset=OFFSET)
    again = np.repeat(np.arange(N), WEIGHT.astype(int))
    repeated = clone(model).fit(X[again], y[again], offset=OFFSET[again])
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4, atol=1e-5)


def test_blocks_and_dask_give_the_fit_of_rows_in_memory(case):
    model, y = case
    model.set_params(engine=ENGINES["gkl" if model.engine == "auto" else model.engine])
    held = clone(model).fit(X, y, sample_weight=WEIGHT, offset=OFFSET)
    parts = (da.from_array(part, chunks=(25, *part.shape[1:])) for part in (X, y, WEIGHT, OFFSET))
    blocked = clone(model).fit(*parts)
    assert blocked.log_evidence_ == pytest.approx(held.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(blocked.coef_, held.coef_, rtol=1e-5, atol=1e-6)
    lazy = blocked.predict(da.from_array(X, chunks=(25, 2)))
    np.testing.assert_allclose(lazy.compute(), held.predict(X), rtol=1e-5, atol=1e-6)


def test_what_was_saved_answers_as_before(case, tmp_path):
    model, y = case
    model.fit(X, y).save(tmp_path / "model.latlin")
    loaded = latlin.load(tmp_path / "model.latlin")
    assert type(loaded) is type(model)
    assert loaded.parameters_ == model.parameters_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    assert str(loaded.summary()) == str(model.summary())


def test_predictions_are_those_of_draws(case):
    model, y = case
    fitted = model.fit(X, y)
    more = {"trials": TRIALS[:5]} if isinstance(model, BayesianBinomialRegression) else {}
    drawn = fitted.sample_y(X[:5], 40_000, random_state=0, **more)
    if isinstance(model, BayesianQuantileRegression):
        np.testing.assert_allclose(np.mean(drawn <= fitted.predict(X[:5])[:, None], axis=1), 0.7, atol=0.03)
    elif isinstance(model, BayesianSurvivalRegression):
        np.testing.assert_allclose(np.median(drawn, axis=1), fitted.predict(X[:5]), rtol=0.05)
        curve = fitted.predict_survival(X[:5], [1.0, 4.0])
        np.testing.assert_allclose(curve[:, 1], np.mean(drawn > 4.0, axis=1), atol=0.02)
        assert np.all(np.diff(curve, axis=1) < 0.0)
    else:
        mean, sd = fitted.predict(X[:5], return_std=True, **more)
        assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5.0 * drawn.std(axis=1) / 200.0)
        np.testing.assert_allclose(drawn.std(axis=1), sd, rtol=0.1)
    low, high = fitted.predict_interval(X[:5], 0.8, **more).T[:, :, None]
    inside = np.mean((drawn >= low) & (drawn <= high), axis=1)
    if np.any(drawn % 1.0):
        np.testing.assert_allclose(inside, 0.8, atol=0.01)
    else:  # one end moves in whole steps to the nearest probability
        steps = np.max([np.mean(drawn == end, axis=1) for end in (low - 1.0, low, high, high + 1.0)], axis=0)
        assert np.all(np.abs(inside - 0.8) < 0.5 * steps + 0.01)


def test_quantile_residuals_of_the_models_own_draws_are_normal(case):
    model, y = case
    # a draw of a dispersion or scale would change the spread of all rows
    fitted = clone(model).set_params(hyperparameters="maximise").fit(X, y)
    rows = np.tile(X, (20, 1))
    more = {"trials": np.tile(TRIALS, 20)} if isinstance(model, BayesianBinomialRegression) else {}
    new = fitted.sample_y(rows, 1, random_state=0, **more)[:, 0]
    observed = np.column_stack([new, more["trials"]]) if more else new
    # one draw of the coefficients moves all rows together, so that only the spread is looked at
    residuals = fitted.quantile_residuals(rows, observed, random_state=1)
    assert 0.9 < residuals.std() < 1.1
    assert stats.kstest(residuals - residuals.mean(), "norm").pvalue > 1e-3


def test_an_exposure_is_an_offset_of_its_logarithm():
    exposure = np.exp(OFFSET)
    for model, y in ((BayesianCountRegression("negative-binomial"), Y["counts"]), (BayesianPoissonRegression(), MEAN)):
        by_exposure, by_offset = clone(model).fit(X, y, exposure=exposure), clone(model).fit(X, y, offset=OFFSET)
        assert by_exposure.log_evidence_ == pytest.approx(by_offset.log_evidence_, abs=1e-9)
        np.testing.assert_allclose(by_exposure.predict(X, exposure=exposure), by_offset.predict(X, OFFSET))
        np.testing.assert_allclose(
            by_exposure.predict_interval(X, exposure=2.0), by_offset.predict_interval(X, offset=np.log(2.0))
        )
        drawn = [
            m.sample_y(X, 2, random_state=0, **o)
            for m, o in ((by_exposure, {"exposure": exposure}), (by_offset, {"offset": OFFSET}))
        ]
        np.testing.assert_allclose(*drawn)


def test_the_evidence_chooses_the_family_and_says_why():
    model = BayesianCountRegression().fit(X, Y["counts"])
    assert model.family_ == "negative-binomial"
    assert "poisson" in model.choice_
    assert model.choice_ in str(model.summary())
    named = BayesianCountRegression(model.family_).fit(X, Y["counts"])
    assert named.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-9)
    plain = BayesianCountRegression().fit(X, np.random.default_rng(0).poisson(MEAN))
    assert plain.family_ == "poisson"
    assert (
        BayesianGammaRegression("auto").fit(X, np.exp(ETA + 0.7 * np.random.default_rng(1).standard_normal(N))).family_
        == "log-normal"
    )


def test_zeros_that_a_dispersion_could_explain_get_a_family_of_their_own():
    draws = np.random.default_rng(1)
    x = draws.standard_normal((150, 1))
    mean = np.exp(1.5 + 0.5 * x[:, 0])
    options = {"engine": "laplace", "prior_scale": 1.0, "hyperparameters": "maximise"}
    with_zeros = BayesianCountRegression(**options).fit(x, draws.poisson(mean) * (draws.random(150) < 0.6))
    assert with_zeros.family_ == "zero-inflated-poisson"
    assert "negative-binomial" in with_zeros.choice_
    varied = BayesianCountRegression(**options).fit(x, draws.poisson(mean * draws.gamma(1.0, 1.0, 150)))
    assert varied.family_ == "negative-binomial"
    even = BayesianCountRegression(**options).fit(x, draws.poisson(mean))
    assert even.family_ == "poisson"
    assert "zero-inflated" not in even.choice_
    assert "hurdle" not in even.choice_


def test_counts_that_are_recorded_from_one_on_get_a_hurdle():
    draws = np.random.default_rng(0)
    x = draws.standard_normal((200, 1))
    y = draws.poisson(np.exp(0.5 + 0.5 * x[:, 0]))
    options = {"engine": "laplace", "prior_scale": 1.0, "hyperparameters": "maximise"}
    model = BayesianCountRegression(**options).fit(x[y > 0], y[y > 0])
    assert model.family_ == "hurdle-poisson"
    assert "against hurdle-negative-binomial" in model.choice_
    # a Poisson fit takes the missing zeros for a smaller effect
    plain = BayesianCountRegression("poisson", **options).fit(x[y > 0], y[y > 0])
    assert model.log_evidence_ > plain.log_evidence_ + 10.0
    assert abs(model.coef_[0] - 0.5) < 2.0 * model.coef_std_[0]
    assert plain.coef_[0] < 0.5 - 3.0 * plain.coef_std_[0]


def test_censored_times_count_as_what_is_known_of_them():
    """A flat prior and one feature less: the rate of exponential times is events over total time."""
    time, event = Y["times"].T
    model = BayesianSurvivalRegression("exponential", prior_scale=1e-6, intercept_scale=1e3, engine="laplace")
    fitted = model.fit(X, time, event=event)
    assert fitted.intercept_ == pytest.approx(np.log(time.sum() / event.sum()), abs=1e-4)
    as_table = clone(model).fit(X, Y["times"])
    assert as_table.log_evidence_ == fitted.log_evidence_
    later = fitted.log_predictive_density(X, time, event=np.zeros(N))
    np.testing.assert_allclose(
        np.exp(later), [fitted.predict_survival(X[n : n + 1], [time[n]])[0, 0] for n in range(N)]
    )
    codes = np.where(event == 1.0, 3.0, event)
    between = clone(model).fit(X, time, event=codes, upper=1.0001 * time)
    np.testing.assert_allclose(between.intercept_, fitted.intercept_, atol=1e-3)


def test_concordance_counts_pairs_whose_order_is_known():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 1.0, 0.0])
    model = BayesianSurvivalRegression(prior_scale=10.0).fit(time[:, None], time, event=event)
    assert model.score(time[:, None], time, event=event) == 1.0
    assert model.score(-time[:, None], time, event=event) == 0.0
    with pytest.raises(ValueError, match="pair of rows"):
        model.score(time[:, None], time, event=np.zeros(4))


def test_poisson_says_when_counts_vary_more():
    y = np.random.default_rng(3).poisson(MEAN * np.random.default_rng(4).gamma(0.5, 2.0, N))
    with pytest.warns(MisfitWarning, match="overdispersed: intervals are too narrow; try family='negative-binomial'"):
        model = BayesianPoissonRegression().fit(X, y)
    assert model.dispersion_ > 2.0
    assert "overdispersed" in str(model.summary())
    with pytest.warns(MisfitWarning, match="overdispersed"):
        blocked = BayesianPoissonRegression().fit(da.from_array(X, chunks=(25, 2)), da.from_array(y, chunks=25))
    assert blocked.dispersion_ == pytest.approx(model.dispersion_, rel=1e-6)
    assert BayesianPoissonRegression().fit(X, np.random.default_rng(5).poisson(MEAN)).finding_ == ""


def test_binomial_says_when_successes_vary_more():
    chance = np.random.default_rng(1).beta(0.5, 0.5, N)
    successes = np.random.default_rng(2).binomial(TRIALS.astype(int), chance)
    with pytest.warns(MisfitWarning, match="try family='beta-binomial'"):
        BayesianBinomialRegression().fit(X, successes, trials=TRIALS)


def test_trials_beside_the_successes_or_among_them_are_the_same():
    apart = BayesianBinomialRegression().fit(X, Y["successes"][:, 0], trials=TRIALS)
    together = BayesianBinomialRegression().fit(X, Y["successes"])
    assert apart.log_evidence_ == together.log_evidence_
    density = apart.log_predictive_density(X, Y["successes"][:, 0], trials=TRIALS)
    np.testing.assert_array_equal(density, together.log_predictive_density(X, Y["successes"]))


@pytest.mark.parametrize(
    ("model", "y", "more", "said"),
    [
        (BayesianCountRegression("negative-binomial"), -np.ones(N), {}, "whole numbers"),
        (BayesianCountRegression("negative-binomial"), MEAN, {}, "whole numbers"),
        (BayesianCountRegression("student-t"), Y["counts"], {}, "family must be one of auto, poisson"),
        (BayesianCountRegression(engine="map"), Y["counts"], {}, "evidence"),
        (BayesianCountRegression("negative-binomial", dispersion=-1.0), Y["counts"], {}, "dispersion must be positive"),
        (BayesianCountRegression("poisson"), Y["counts"], {"exposure": np.zeros(N)}, "exposure must hold positive"),
        (BayesianGammaRegression(), np.zeros(N), {}, "positive"),
        (BayesianBetaRegression(), np.linspace(0.0, 1.0, N), {}, "between"),
        (BayesianSurvivalRegression(), np.zeros(N), {}, "positive"),
        (BayesianSurvivalRegression(), MEAN, {"event": np.full(N, 7)}, "right-censored"),
        (BayesianSurvivalRegression(), MEAN, {"upper": MEAN}, "give event too"),
        (BayesianBinomialRegression(), TRIALS + 1.0, {"trials": TRIALS}, "at most trials"),
        (BayesianBinomialRegression(), TRIALS, {"trials": TRIALS[:3]}, "one number per row"),
    ],
)
def test_bad_input_gets_a_sentence(model, y, more, said):
    with pytest.raises(ValueError, match=said):
        model.fit(X, y, **more)


def test_a_spike_and_a_slab_part_the_coefficients():
    draws = np.random.default_rng(0)
    Z = draws.standard_normal((80, 12))
    y = 2.0 * Z[:, 0] - 1.5 * Z[:, 1] + 0.5 * draws.standard_normal(80)
    model = SparseRegression("spike-and-slab", engine="ep").fit(Z, y)
    shares = model.inclusion_probabilities()
    assert np.all(shares[:2] > 0.95)
    assert np.all(shares[2:] < 0.5)
    assert 0.02 < model.prior_probability_ < 0.6
    with pytest.raises(ValueError, match="spike-and-slab"):
        SparseRegression().fit(Z, y).inclusion_probabilities()


def test_shares_that_hardly_vary_converge():
    """A large precision: differences of gamma functions have no digits left there."""
    rng = np.random.default_rng(2)
    X = rng.random((10, 20))
    y = expit(1.5 * np.tanh(rng.integers(0, 3, 10))).repeat(3)
    model = BayesianBetaRegression(precision=3e5, prior_scale=0.15).fit(X.repeat(3, axis=0), y)
    assert model.converged_


def test_what_a_family_cannot_produce_is_told_with_its_rows():
    rows, y = np.arange(6.0)[:, None], np.array([1.0, 2.0, -1.0, 3.0, -2.0, 0.0])
    for model in (BayesianCountRegression(), BayesianCountRegression("negative-binomial")):
        with pytest.raises(ValueError, match=r"y must hold .*, got -1 in 2 rows, first in row 2$"):
            model.fit(rows, y)
    # rows of weight zero are not looked at, and still count as rows
    with pytest.raises(ValueError, match=r"got -2 in 1 row, first in row 4$"):
        BayesianCountRegression("negative-binomial").fit(rows, y, sample_weight=[1, 1, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="at most trials, got 3 in 1 row, first in row 3"):
        BayesianBinomialRegression().fit(rows, np.abs(y), trials=2)
    with pytest.raises(ValueError, match=r"got -2 at site 1 \(1 of 3 sites\)") as told:
        BayesianCountRegression("negative-binomial").fit(
            da.from_array(rows, chunks=(3, 1)), da.from_array(np.where(y == -1.0, 0.0, y), chunks=3)
        )
    assert "in block 1 of the rows" in str(told.value)


def test_a_simpler_family_near_the_best_is_not_said_to_have_the_highest_evidence():
    first, second = (
        Tried(SimpleNamespace(family=name, log_evidence_=value), [])
        for name, value in (("poisson", -10.5), ("negative-binomial", -10.0))
    )
    model = BayesianCountRegression("poisson")
    model.family_, model.evidence_kind_ = "poisson", "exact"
    near = "family poisson was chosen as the simplest one near the highest log evidence: poisson -10.50 (exact)"
    assert model._reason([first, second], first) == f"{near} against negative-binomial -10.00"
    assert model._reason([first, second], second).startswith("family poisson was chosen by its log evidence")
