"""Families of counts, amounts, shares and times on the command line, with exposures, trials and events."""

import io
import re

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

from latlin import linear
from latlin.cli.app import app
from latlin.cli.models import diagnose_fit, load_model

N = 120


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal((2, N))
    mean, years = np.exp(1.0 + 0.5 * x), rng.uniform(0.5, 3.0, N)
    size, falls = rng.integers(5, 20, N), np.random.default_rng(6).poisson(2.0 * np.sqrt(mean))
    columns = {
        "visits": rng.poisson(mean * years * rng.gamma(1.0, 1.0, N)),
        "cost": mean * rng.gamma(3.0, 1.0 / 3.0, N),
        "rain": rng.gamma(np.maximum(falls, 1e-12), 0.5 * np.sqrt(mean)) * (falls > 0),
        "share": rng.beta(5.0 / (1.0 + np.exp(-x)), 5.0 / (1.0 + np.exp(x))),
        "wins": rng.binomial(size, 1.0 / (1.0 + np.exp(-x))),
        "weeks": mean * rng.weibull(1.5, N),
    }
    folder = tmp_path_factory.mktemp("families")
    beside = {"visits": {"years": years}, "wins": {"games": size}, "weeks": {"seen": (rng.random(N) < 0.7).astype(int)}}
    for name, values in columns.items():
        table = pandas.DataFrame({"x": x, "z": z, name: values, **beside.get(name, {})})
        (table.head(60) if name == "rain" else table).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.parametrize(
    ("target", "options", "model"),
    [
        ("visits", ("--family", "negative-binomial", "--exposure", "years"), "BayesianCountRegression"),
        ("cost", (), "BayesianGammaRegression"),
        ("share", (), "BayesianBetaRegression"),
        ("wins", ("--trials", "games"), "BayesianBinomialRegression"),
        ("weeks", ("--event", "seen"), "BayesianSurvivalRegression"),
    ],
)
def test_a_family_fits_predicts_and_reports(data, tmp_path, target, options, model):
    """Named or, where there is something to choose, chosen, which is said."""
    path, table = tmp_path / "m.latlin", data / f"{target}.csv"
    result = run("fit", table, "-t", target, *options, "--folds", 2, "--prior-scale", 1.0, "--out", path, "-q")
    assert result.exit_code == 0, result.output
    loaded, said = load_model(path), " ".join(result.output.split())
    if "--family" not in options:
        names = {"cost": "gamma", "share": "beta", "wins": "binomial", "weeks": "weibull"}
        assert loaded.target.family == names[target]
        assert f"Family {names[target]} was chosen by its log evidence: {names[target]} " in said
        assert f"Mean log probability per held-out row: {names[target]} " in said
    assert type(loaded.estimator).__name__ == model
    assert loaded.facts.features == 2
    assert loaded.facts.assessment.pit
    predicted = run("predict", path, table)
    assert predicted.exit_code == 0, predicted.output
    found, seen = pandas.read_csv(io.StringIO(predicted.stdout)), pandas.read_csv(table)[target]
    assert list(found.columns) == [target, "sd", "low", "high"]
    inside = ((found["low"] <= seen) & (seen <= found["high"])).mean()
    assert inside > (0.6 if target == "weeks" else 0.8)
    page = tmp_path / "r.html"
    assert run("report", path, "--out", page).exit_code == 0
    assert "Where held-out observations fall" in page.read_text("utf8")


OTHERS = {
    "visits": (
        "poisson",
        "generalised-poisson",
        "zero-inflated-poisson",
        "zero-inflated-negative-binomial",
        "hurdle-poisson",
        "hurdle-negative-binomial",
    ),
    "cost": ("inverse-gaussian", "log-normal", "robust"),
    "rain": ("tweedie",),
    "weeks": ("exponential", "log-logistic"),
    "wins": ("beta-binomial",),
}


@pytest.mark.parametrize(("target", "family"), [(t, family) for t, names in OTHERS.items() for family in names])
def test_other_families_fit_and_predict(data, tmp_path, target, family):
    path, table = tmp_path / "m.latlin", data / f"{target}.csv"
    beside = {"visits": ("--exposure", "years"), "weeks": ("--event", "seen"), "wins": ("--trials", "games")}
    words = ("-t", target, "--family", family, *beside.get(target, ()), "--engine", "laplace", "--prior-scale", 1.0)
    result = run("fit", table, *words, "--folds", 2, "--out", path, "-q")
    assert result.exit_code == 0, result.output
    predicted = run("predict", path, table)
    assert predicted.exit_code == 0, predicted.output
    found, seen = pandas.read_csv(io.StringIO(predicted.stdout)), pandas.read_csv(table)[target]
    assert ((found["low"] <= seen) & (seen <= found["high"])).mean() > 0.5


@pytest.mark.parametrize("family", ["softmax", "multinomial-probit"])
def test_all_classes_together_fit_predict_and_report(tmp_path, family):
    rng = np.random.default_rng(3)
    x, z = rng.standard_normal((2, 60))
    kinds = np.where(x + 0.5 * z > 0.5, "high", np.where(x + 0.5 * z < -0.5, "low", "mid"))
    pandas.DataFrame({"x": x, "z": z, "kind": kinds}).to_csv(tmp_path / "t.csv", index=False)
    path, words = tmp_path / "m.latlin", ("-t", "kind", "--family", family, "--prior-scale", 1.0, "--folds", 2, "-q")
    result = run("fit", tmp_path / "t.csv", *words, "--out", path)
    assert result.exit_code == 0, result.output
    # one evidence, no verdict by draws of one class, nothing on residuals of what stands for the likelihood
    assert result.output.count("Log evidence") == 1
    assert "Approximation: not checked" in result.output
    assert "robust" not in result.output
    predicted = run("predict", path, tmp_path / "t.csv")
    assert predicted.exit_code == 0, predicted.output
    found = pandas.read_csv(io.StringIO(predicted.stdout))
    assert list(found.columns) == ["kind", "P(high)", "P(low)", "P(mid)"]
    assert np.mean(found["kind"] == kinds) > 0.8
    assert run("report", path, "--out", tmp_path / "r.html").exit_code == 0
    refused = run("fit", tmp_path / "t.csv", *words, "--engine", "ep", "--out", path)
    assert "is fitted by Gaussian KL, not by the engine 'ep'" in " ".join(refused.output.split())


def test_the_approximation_has_a_verdict_also_of_several_classes_and_of_exact_fits(tmp_path):
    rng = np.random.default_rng(3)
    x, z = rng.standard_normal((2, 60))
    kinds = np.where(x > 0.5, "high", np.where(x < -0.5, "low", "mid"))
    y = x - z + rng.standard_normal(60)
    pandas.DataFrame({"x": x + 0.3 * z, "z": z, "kind": kinds}).to_csv(tmp_path / "k.csv", index=False)
    pandas.DataFrame({"x": x, "z": z, "y": y}).to_csv(tmp_path / "y.csv", index=False)
    words = ("--prior-scale", 1.0, "--folds", 0, "-q", "--out", tmp_path / "m.latlin")
    classes = run("fit", tmp_path / "k.csv", "-t", "kind", "--family", "logistic", *words)
    assert re.search(r"Approximation: \w+: class (high|low|mid): k̂ = ", classes.output)
    assert run("report", tmp_path / "m.latlin", "--out", tmp_path / "r.html").exit_code == 0
    engine = linear.BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(np.column_stack([x, z]), y)
    assert diagnose_fit(engine, 60) == [("Approximation", "accurate: this posterior is exact, given the scales")]


def test_a_quantile_is_fitted_predicted_and_reported(data, tmp_path):
    path, table = tmp_path / "m.latlin", data / "cost.csv"
    words = ("-t", "cost", "--quantile", 0.8, "--prior-scale", 1.0, "--folds", 3, "-q", "--out", path)
    result = run("fit", table, *words)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "the 80 % quantile of cost" in said
    assert "the change of the quantile of cost" in said
    loaded = load_model(path)
    assert type(loaded.estimator).__name__ == "BayesianQuantileRegression"
    assert loaded.estimator.quantile == loaded.target.quantile == 0.8
    assert loaded.facts.assessment.curve_kind == "quantile"
    assert 0.65 < loaded.facts.assessment.scores["share below"] < 0.92
    predicted = run("predict", path, table, "--interval", 0.6)
    assert predicted.exit_code == 0, predicted.output
    found, seen = pandas.read_csv(io.StringIO(predicted.stdout)), pandas.read_csv(table)
    assert 0.7 < np.mean(seen["cost"] < found["cost"]) < 0.9
    # the interval of the quantile, not of a new observation
    _, sd = loaded.estimator.predict_latent(seen[["x", "z"]], return_std=True)
    np.testing.assert_allclose(found["sd"], sd, rtol=1e-9)
    np.testing.assert_allclose(0.5 * (found["high"] - found["low"]), 0.8416212 * sd, rtol=0.05)
    assert run("report", path, "--out", tmp_path / "r.html").exit_code == 0
    assert "lie below their predicted quantile, and 80 % should" in (tmp_path / "r.html").read_text("utf8")


def test_the_family_of_counts_is_chosen_and_the_choice_is_said(data, tmp_path):
    words = ("-t", "visits", "--exposure", "years", "--folds", 2, "--out", tmp_path / "m.latlin", "-q")
    result = run("fit", data / "visits.csv", *words)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "Family negative-binomial was chosen by its log evidence: negative-binomial" in said
    assert said.count("was chosen by its log evidence") == 1
    assert "Mean log probability per held-out row: negative-binomial" in said
    assert load_model(tmp_path / "m.latlin").target.family == "negative-binomial"


@pytest.mark.parametrize(("shift", "options"), [(0.0, ()), (50.0, ()), (9.0, ("--engine", "gkl"))])
def test_numbers_of_even_spread_are_linear_positive_or_not(tmp_path, shift, options):
    x, noise = np.random.default_rng(0).standard_normal((2, 80))
    pandas.DataFrame({"x": x, "y": shift + x + noise}).to_csv(tmp_path / "t.csv", index=False)
    words = ("-t", "y", "--folds", 0, "--prior-scale", 1.0, "-q", "--out", tmp_path / "m.latlin", *options)
    result = run("fit", tmp_path / "t.csv", *words)
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "m.latlin").target.family == "linear"
    why = "linear was chosen by its log evidence" if shift == 50.0 else "linear, because 'y' holds measured numbers"
    assert f"Family {why}" in " ".join(result.output.split())


def test_poisson_counts_that_vary_more_are_told(data, tmp_path):
    words = ("-t", "visits", "--family", "poisson", "--exposure", "years", "--folds", 2, "-q")
    result = run("fit", data / "visits.csv", *words, "--out", tmp_path / "m.latlin")
    assert "overdispersed: intervals are too narrow; try family='negative-binomial'" in " ".join(result.output.split())
    assert run("report", tmp_path / "m.latlin", "--out", tmp_path / "r.html").exit_code == 0
    assert "overdispersed" in (tmp_path / "r.html").read_text("utf8")


def test_families_of_counts_are_compared(data):
    words = ("-t", "visits", "--family", "poisson,negative-binomial", "--engine", "laplace", "--exposure", "years")
    result = run("compare", data / "visits.csv", *words, "--folds", 2, "-q")
    assert result.exit_code == 0, result.output
    assert result.output.index("negative-binomial") < result.output.rindex("poisson")


def test_families_of_positive_numbers_are_compared(data, tmp_path):
    """A fit chooses among these families, so that a comparison has them too, and takes them side by side."""
    words = ("--folds", 2, "-q", "--engine", "laplace", "--out", tmp_path / "c.csv")
    for more, expected in (
        ((), {"linear", "robust", "sparse", "gamma", "log-normal"}),
        (("--family", "linear,gamma"), {"linear", "gamma"}),
    ):
        result = run("compare", data / "cost.csv", "-t", "cost", *more, *words)
        assert result.exit_code == 0, result.output
        table = pandas.read_csv(tmp_path / "c.csv").set_index("family")
        assert set(table.index) == expected
        assert table["held out"]["gamma"] > table["held out"]["linear"]
    table = pandas.read_csv(data / "cost.csv")
    table.assign(area=1.0 + table["z"] ** 2).to_csv(tmp_path / "areas.csv", index=False)
    exposed = run("compare", tmp_path / "areas.csv", "-t", "cost", "--family", "gamma,linear", "--exposure", "area")
    assert "family 'linear' cannot be compared" in exposed.output
    zeros = run("compare", data / "rain.csv", "-t", "rain", "--family", "tweedie,linear", *words)
    assert "family 'linear' cannot be compared" in zeros.output


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("cost", ("--family", "gamma", "--trials", "x"), "--trials is for the family binomial"),
        ("cost", ("--family", "gamma", "--exposure", "none"), "no column 'none'"),
        ("cost", ("--family", "linear", "--exposure", "x"), "--exposure is for counts and amounts"),
        ("visits", ("--family", "poisson", "--exposure", "x"), "must be positive"),
        ("cost", ("--family", "negative-binomial"), "(family negative-binomial): y must hold whole numbers 0, 1, 2"),
        ("cost", ("--family", "gamma", "--quantile", 0.9), "--quantile is for the family quantile"),
        ("cost", ("--quantile", 1.0), "quantile must be"),
        ("cost", ("--formula", "cost ~ x", "--quantile", 0.9), "AdditiveModel takes family=AsymmetricLaplace"),
    ],
)
def test_what_does_not_suit_gets_a_sentence(data, tmp_path, target, options, said):
    result = run("fit", data / f"{target}.csv", "-t", target, *options, "--out", tmp_path / "m.latlin")
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())
