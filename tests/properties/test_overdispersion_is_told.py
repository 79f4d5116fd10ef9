"""Poisson counts that vary more than Poisson counts do are told wherever the family is used."""

import warnings

import numpy as np
import pandas
import pytest

import latlin
from latlin.additive import AdditiveModel
from latlin.factor import MatrixFactorization, MixedFactorAnalysis, TrilinearFactorization
from latlin.gp import GaussianProcessRegressor
from latlin.inference.diagnosis.dispersion import dispersion_about, pearson_sums
from latlin.linear import BayesianCountRegression, BayesianPoissonRegression
from latlin.numerics.alerts import MisfitWarning
from latlin.potentials import Hurdle, Poisson, ZeroInflated
from latlin.report import write_report

N = 150
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 1))
MEAN = np.exp(1.0 + 0.5 * X[:, 0])
COUNTS = {"even": RNG.poisson(MEAN), "varied": RNG.poisson(MEAN * RNG.gamma(1.0, 1.0, N))}
SAID = "overdispersed: intervals are too narrow; try {option}='negative-binomial'"


def linear(y):
    return BayesianPoissonRegression(prior_scale=1.0).fit(X, y)


def process(y):
    return GaussianProcessRegressor(
        likelihood="poisson", engine="laplace", optimizer=None, hyperparameters="fixed"
    ).fit(X, y)


def formula(y):
    frame = pandas.DataFrame({"x": X[:, 0], "y": y})
    return AdditiveModel("y ~ x", "poisson", engine="laplace").fit(frame)


def mixed(y):
    table = pandas.DataFrame({"y": y, "x": X[:, 0], "z": X[:, 0] + 0.1 * RNG.standard_normal(N)})
    return MixedFactorAnalysis(1, types={"y": "count"}, random_state=0).fit(table)


@pytest.mark.parametrize(
    ("fit", "option"), [(linear, "family"), (process, "likelihood"), (formula, "family"), (mixed, "type")]
)
def test_by_a_warning_a_number_and_a_sentence(fit, option, tmp_path):
    with pytest.warns(MisfitWarning, match=SAID.format(option=option)):
        model = fit(COUNTS["varied"])
    ratio = model.dispersion_["y"] if fit is mixed else model.dispersion_
    # var = μ + μ²: 1 + mean of μ, and more
    assert 2.0 < ratio < 8.0
    assert SAID.format(option=option) in model.finding_
    if hasattr(model, "summary"):
        assert "overdispersed" in repr(model.summary())
    model.save(tmp_path / "m.latlin")
    assert latlin.load(tmp_path / "m.latlin").finding_ == model.finding_
    # counts of the family itself are not accused: a warning would be an error
    assert fit(COUNTS["even"]).finding_ == ""


def with_zeros(fit, y, family):
    """The same, for counts some of which are zero whatever their mean."""
    if fit is linear:
        return BayesianCountRegression(family, prior_scale=1.0, engine="laplace", hyperparameters="maximise").fit(X, y)
    if fit is process:
        options = {"engine": "laplace", "optimizer": None, "hyperparameters": "fixed"}
        return GaussianProcessRegressor(likelihood=family, likelihood_params={"probability": 0.3}, **options).fit(X, y)
    frame = pandas.DataFrame({"x": X[:, 0], "y": y})
    return AdditiveModel("y ~ x", family, engine="laplace", hyperparameters="maximise").fit(frame)


@pytest.mark.parametrize(("fit", "option"), [(linear, "family"), (process, "likelihood"), (formula, "family")])
@pytest.mark.parametrize("kind", ["zero-inflated", "hurdle"])
def test_of_counts_with_zeros_of_their_own(fit, option, kind):
    stays = np.random.default_rng(1).random(N) < 0.7
    with pytest.warns(MisfitWarning, match=f"overdispersed: .* try {option}='{kind}-negative-binomial'"):
        assert with_zeros(fit, COUNTS["varied"] * stays, f"{kind}-poisson").dispersion_ > 1.3
    even = with_zeros(fit, COUNTS["even"] * stays, f"{kind}-poisson")
    assert even.finding_ == ""
    assert even.dispersion_ == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("block", [ZeroInflated(Poisson(0), 0.3), Hurdle(Poisson(0), 0.2), Hurdle(Poisson(0), 1e-3)])
def test_the_statistic_has_the_variance_it_is_judged_by(block):
    """Σ var r² by the probabilities of all counts."""
    x, k = np.array([-2.0, 0.5, 2.0]), np.arange(80.0)[:, None]
    p = np.exp(block.predictive(x, np.zeros(3)).log_density(k))
    mean = np.sum(p * k, axis=0)
    square = (k - mean) ** 2 / np.sum(p * (k - mean) ** 2, axis=0)
    wanted = np.sum(p * (square - 1.0) ** 2)
    assert pearson_sums(block.observe(np.zeros(3)), x, np.ones(3))[2] == pytest.approx(wanted, rel=1e-9)


def test_by_the_page_of_a_formula(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        model = formula(COUNTS["varied"])
    write_report(tmp_path / "page.html", model)
    assert "overdispersed: they vary more than the family allows" in (tmp_path / "page.html").read_text("utf8")


def test_rows_of_formulas_with_groups_are_counted_once():
    """Coefficients that rows have determined are no reason to call what is left too even, or too uneven."""
    group = RNG.integers(0, 15, N)
    y = RNG.poisson(np.exp(1.0 + 0.5 * X[:, 0] + 0.7 * RNG.standard_normal(15)[group]))
    frame = pandas.DataFrame({"x": X[:, 0], "g": group.astype(str), "y": y})
    model = AdditiveModel("y ~ x + (1 | g)", "poisson", engine="laplace").fit(frame)
    assert model.dispersion_ == pytest.approx(1.0, abs=0.3)
    bernoulli = AdditiveModel("y ~ x", "bernoulli", engine="laplace").fit(frame.assign(y=(y > 2).astype(float)))
    assert np.isnan(bernoulli.dispersion_)


@pytest.mark.parametrize(("model", "shape"), [(MatrixFactorization, (40, 8)), (TrilinearFactorization, (10, 8, 6))])
def test_by_factorisations_of_tables(model, shape, tmp_path):
    rng = np.random.default_rng(1)
    sides = np.ix_(*(0.4 * rng.standard_normal(n) for n in shape))
    mean = np.exp(1.0 + sum(sides))
    with pytest.warns(MisfitWarning, match=SAID.format(option="family")):
        varied = model(1, family="poisson", random_state=0).fit(rng.poisson(mean * rng.gamma(1.0, 1.0, shape)) * 1.0)
    assert 2.0 < varied.dispersion_ < 8.0
    varied.save(tmp_path / "m.latlin")
    assert latlin.load(tmp_path / "m.latlin").finding_ == varied.finding_
    even = model(1, family="poisson", random_state=0).fit(rng.poisson(mean) * 1.0)
    assert even.finding_ == ""
    assert even.dispersion_ == pytest.approx(1.0, abs=0.3)


def test_a_few_rows_are_not_taken_for_another_family():
    rng = np.random.default_rng(1)
    mean = np.r_[np.full(6, 0.02), np.exp(rng.normal(1.0, 0.5, 594))]
    y = rng.poisson(mean).astype(float)
    assert dispersion_about(Poisson(y), np.log(mean), np.full(600, 1e-3)).words("negative-binomial") == ""
    # areas where nobody was expected
    y[:4] = 3.0
    few = dispersion_about(Poisson(y), np.log(mean), np.full(600, 1e-3))
    assert few.outlying == 6
    assert few.without < 1.0 < few.ratio
    for said in (few.words("negative-binomial"), str(few.check("negative-binomial"))):
        assert "6 rows are far" in said
        assert "negative-binomial" not in said
    varied = dispersion_about(Poisson(COUNTS["varied"]), np.log(MEAN), np.full(N, 1e-3))
    assert varied.outlying == 0
    assert "negative-binomial" in varied.words("negative-binomial")
