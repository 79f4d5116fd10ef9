"""The command line: from a table to a model, predictions, a page; mistakes in one sentence with exit code 1."""

import errno
import io
import time
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest

import latlin
from latlin.linear import BayesianLogisticRegression
from latlin.numerics.archive import read_archive, write_archive

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli import app as app_module  # noqa: E402
from latlin.cli import compare as compare_module  # noqa: E402
from latlin.cli import explore as explore_module  # noqa: E402
from latlin.cli import formula as formula_module  # noqa: E402
from latlin.cli import models  # noqa: E402
from latlin.cli import options as options_module  # noqa: E402
from latlin.cli import prepare as prepare_module  # noqa: E402
from latlin.cli.app import app  # noqa: E402
from latlin.cli.models import load_model  # noqa: E402
from latlin.datasets.dates import DAYS  # noqa: E402


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def assert_told(result, *words):
    """One sentence on standard error, or a list of problems; exit code 1, no traceback."""
    assert result.exit_code == 1
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert lines[0].startswith("latlin: ")
    problems = len(lines) - 1
    assert all(line.startswith("- ") for line in lines[1:])
    assert not problems or lines[0] == f"latlin: {problems} things need a decision:"
    for word in words:
        assert word in "\n".join(lines)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 120
    age, dose = rng.normal(50, 10, n), rng.exponential(2.0, n)
    city = rng.choice(["Oslo", "Rome", "Bonn"], n)
    latent = 0.1 * (age - 50) - 0.8 * dose + 1.5 * (city == "Rome") + 1.0
    return pandas.DataFrame(
        {
            "age": age,
            "dose": dose,
            "city": city,
            "outcome": np.where(latent + rng.logistic(size=n) > 0, "well", "ill"),
            "weight": latent + 0.5 * rng.standard_normal(n),
            "visits": rng.poisson(np.exp(0.3 * latent + 1.0)),
            "grade": np.digitize(latent + rng.standard_normal(n), [-1.0, 1.0]) + 1,
        }
    )


OTHERS = {"outcome", "weight", "visits", "grade"}


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    for target in OTHERS:
        frame.drop(columns=[*(OTHERS - {target})]).to_csv(folder / f"{target}.csv", index=False)
        frame.drop(columns=[*(OTHERS - {target})]).head(60).to_csv(folder / f"{target}_few.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """A fitted model of the outcome."""
    path = folder / "outcome.latlin"
    result = run("fit", folder / "outcome.csv", "--target", "outcome", "--out", path, "--folds", 3)
    assert result.exit_code == 0, result.output
    return path, result.stdout


def test_fit_says_what_it_found(model):
    path, output = model
    for words in ("Family logistic", "two values, 'ill', 'well'", "Log evidence -", "(lower bound)", "Converged"):
        assert words in output
    for words in ("Held out, 3 folds", "city=Rome", "dose", "P(> 0)", f"Saved {path}"):
        assert words in output
    for words in (
        "Approximation: accurate",
        "Model: ",
        "city, compared with Bonn",
        "a clear effect",
        "log odds of outcome = well",
    ):
        assert words in output


def test_the_file_holds_the_estimator_and_its_encoding(model, frame):
    loaded = load_model(model[0])
    assert loaded.encoding.names == ["age", "dose", "city=Oslo", "city=Rome"]
    assert list(loaded.estimator.feature_names_in_) == loaded.encoding.names
    assert loaded.target.labels == ["ill", "well"]
    plain = latlin.load(model[0])
    assert isinstance(plain, BayesianLogisticRegression)
    X = loaded.encoding.encode(frame).matrix
    np.testing.assert_array_equal(plain.predict_proba(X), loaded.estimator.predict_proba(X))
    again = BayesianLogisticRegression().fit(X, frame["outcome"])
    np.testing.assert_allclose(again.coef_, plain.coef_, rtol=1e-5)
    assert loaded.facts.log_evidence[0][1] == pytest.approx(again.log_evidence_, abs=1e-6)


def test_predict_writes_probabilities_with_intervals(model, folder, frame):
    new = frame[["city", "dose", "age"]].head(7)
    new.to_csv(folder / "new.csv", index=False)
    result = run("predict", model[0], folder / "new.csv", "--interval", 0.8, "--out", folder / "pred.csv")
    assert result.exit_code == 0, result.output
    table = pandas.read_csv(folder / "pred.csv")
    assert list(table.columns) == ["outcome", "P(ill)", "P(well)", "P(well) low", "P(well) high"]
    loaded = load_model(model[0])
    X = loaded.encoding.encode(new).matrix
    np.testing.assert_allclose(table[["P(ill)", "P(well)"]], loaded.estimator.predict_proba(X))
    np.testing.assert_allclose(table.iloc[:, 3:], loaded.estimator.predict_interval(X, coverage=0.8))
    assert list(table["outcome"]) == list(loaded.estimator.predict(X))
    printed = run("predict", model[0], folder / "new.csv", "--interval", 0.8)
    pandas.testing.assert_frame_equal(pandas.read_csv(io.StringIO(printed.stdout)), table)


def test_predict_keeps_order_and_columns(model, folder, frame):
    new = frame[["age", "dose", "city"]].head(4).copy()
    new.loc[1, "age"] = np.nan
    new.to_csv(folder / "gap.csv", index=False)
    assert_told(run("predict", model[0], folder / "gap.csv"), "missing values: 'age' 1 of 4 rows")
    result = run("predict", model[0], folder / "gap.csv", "--missing", "drop", "--keep")
    table = pandas.read_csv(io.StringIO(result.stdout))
    assert table["predicted_P(well)"].isna().tolist() == [False, True, False, False]
    assert list(table["city"]) == list(new["city"])
    filled = pandas.read_csv(io.StringIO(run("predict", model[0], folder / "gap.csv", "--missing", "impute").stdout))
    assert filled.notna().all(axis=None)


@pytest.mark.parametrize(
    ("target", "family", "columns"),
    [
        ("weight", "linear", ["weight", "sd", "low", "high"]),
        ("weight", "robust", ["weight", "sd", "low", "high"]),
        ("weight", "sparse", ["weight", "sd", "low", "high"]),
        ("visits", "poisson", ["visits", "sd", "low", "high"]),
        ("grade", "ordinal", ["grade", "P(1)", "P(2)", "P(3)"]),
        ("grade", "logistic", ["grade", "P(1)", "P(2)", "P(3)"]),
        ("outcome", "probit", ["outcome", "P(ill)", "P(well)", "P(well) low", "P(well) high"]),
    ],
)
def test_every_family_fits_predicts_and_reports(folder, target, family, columns, tmp_path):
    path, data = tmp_path / "m.latlin", folder / f"{target}_few.csv"
    options = ("--family", family, "--folds", 2, "--prior-scale", 1.0)
    result = run("fit", data, "-t", target, *options, "--out", path)
    assert result.exit_code == 0, result.output
    predicted = run("predict", path, data)
    assert predicted.exit_code == 0, predicted.output
    table = pandas.read_csv(io.StringIO(predicted.stdout))
    assert list(table.columns) == columns
    assert len(table) == 60
    assert table.notna().all(axis=None)
    if "low" in columns:
        seen = pandas.read_csv(data)[target]
        assert 0.8 < ((table["low"] <= seen) & (seen <= table["high"])).mean() <= 1.0
    else:
        np.testing.assert_allclose(table.filter(regex=r"^P\([^)]*\)$").sum(axis=1), 1.0)
    assert run("report", path, "--out", tmp_path / "r.html").exit_code == 0
    assert "Calibration on held-out rows" in (tmp_path / "r.html").read_text("utf8")


def test_an_unclear_target_is_asked_about(folder, tmp_path):
    result = run("fit", folder / "grade.csv", "--target", "grade", "--out", tmp_path / "m.latlin")
    assert_told(result, "only 3 different whole numbers", "--family ordinal or poisson or linear")
    assert not (tmp_path / "m.latlin").exists()


def test_somebody_at_the_terminal_is_asked(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("latlin.cli.app._somebody_is_there", lambda: True)
    words = ["fit", folder / "grade_few.csv", "-t", "grade", "--folds", 0, "--out", tmp_path / "m.latlin"]
    result = CliRunner().invoke(app, [str(word) for word in words], input="poisson\n")
    assert result.exit_code == 0, result.output
    assert "only 3 different whole numbers. Which family, ordinal or poisson or linear?" in result.output
    assert load_model(tmp_path / "m.latlin").target.family == "poisson"


def test_a_full_disk_leaves_the_old_model(model, folder, monkeypatch):
    path = model[0]
    before, files = path.read_bytes(), sorted(folder.iterdir())

    def full(self, *args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "open", full)
    assert_told(
        run("fit", folder / "outcome.csv", "-t", "outcome", "--folds", 0, "--out", path), "No space left on device"
    )
    assert path.read_bytes() == before
    assert sorted(folder.iterdir()) == files


def test_ordered_texts_need_their_order(folder, frame, tmp_path):
    grades = frame[["age"]].assign(grade=frame["grade"].map({1: "low", 2: "mid", 3: "high"}))
    grades.head(40).to_csv(tmp_path / "g.csv", index=False)
    words = ("fit", tmp_path / "g.csv", "-t", "grade", "--folds", 0, "--engine", "laplace")
    assert_told(run(*words, "--family", "ordinal", "--out", tmp_path / "m.latlin"), "say their order", "--levels")
    # an order says that the family is ordinal
    result = run(*words, "--levels", "low, mid, high", "--out", tmp_path / "m.latlin")
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "m.latlin").estimator.classes_.tolist() == ["low", "mid", "high"]


def test_report_and_summary_from_the_file_alone(model, tmp_path):
    result = run("report", model[0], "--out", tmp_path / "r.html", "--title", "A <b> title")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.html").read_text("utf8")
    assert "<h1>A &lt;b&gt; title</h1>" in page
    assert "The log evidence is a lower bound" in page
    result = run("summary", model[0], "--interval", 0.5, "--out", tmp_path / "s.csv")
    assert result.exit_code == 0, result.output
    assert "25 %" in result.stdout
    table = pandas.read_csv(tmp_path / "s.csv")
    assert list(table["name"]) == ["age", "dose", "city=Oslo", "city=Rome", "intercept"]
    summary = latlin.load(model[0]).summary(0.5).to_pandas()
    np.testing.assert_allclose(table[["mean", "low", "high"]], summary[["mean", "low", "high"]])


def test_how_scales_are_learnt_can_be_said(folder, tmp_path):
    words = ["fit", folder / "weight.csv", "-t", "weight", "--folds", 0, "--out", tmp_path / "m.latlin"]
    for way, said in (("maximise", "scales are fixed at their most probable"), ("integrate", "averaged over")):
        result = run(*words, "--hyperparameters", way)
        assert result.exit_code == 0, result.output
        assert said in " ".join(result.stdout.split())
    asked = ("--hyperparameters", "maximise", "--out", tmp_path / "f.latlin")
    assert run("fit", folder / "weight.csv", "--formula", "weight ~ age", *asked).exit_code == 0
    assert latlin.load(tmp_path / "f.latlin").hyperparameters == "maximise"
    assert_told(run(*words, "--hyperparameters", "guess"), "hyperparameters must be", "'guess'")


def test_compare(folder, tmp_path):
    words = ("--folds", 2, "--prior-scale", 1.0, "--engine", "laplace,gkl", "--out", tmp_path / "c.csv")
    result = run("compare", folder / "outcome.csv", "-t", "outcome", *words)
    assert result.exit_code == 0, result.output
    table = pandas.read_csv(tmp_path / "c.csv")
    assert sorted(table["family"] + " " + table["engine"]) == [
        "logistic gkl",
        "logistic laplace",
        "probit gkl",
        "probit laplace",
    ]
    assert table["held out"].is_monotonic_decreasing
    kinds = dict(zip(table["engine"], table["kind"], strict=True))
    assert kinds == {"laplace": "approximation", "gkl": "lower bound"}
    assert "best first" in result.stdout
    assert table["against the best"].iloc[0] == "best"
    places = {place.partition(" (")[0] for place in table["against the best"]}
    assert places <= {"best", "tie", "worse", "not told apart"}
    assert table["difference"].iloc[0] == 0.0
    assert (table["difference"] <= 0.0).all()


def test_tables_of_other_habits(frame, tmp_path):
    odd = frame[["age", "dose", "city", "outcome"]].copy()
    odd.to_csv(tmp_path / "odd.csv", index=False, sep=";", decimal=",")
    text = (tmp_path / "odd.csv").read_text("utf8").splitlines()
    text[3] = ";".join(["n/a", *text[3].split(";")[1:]])
    (tmp_path / "odd.csv").write_text("\n".join(text), "utf8")
    words = ("fit", tmp_path / "odd.csv", "-t", "outcome", "--folds", 0, "--prior-scale", 1.0, "--engine", "laplace")
    words = (*words, "--out", tmp_path / "m.latlin")
    assert_told(run(*words), "separated by ',', and seem to be by ';': give --sep ';'")
    assert_told(run(*words, "--sep", ";", "--decimal", ",", "--missing-values", "?"), "missing values: 'age' 1")
    more = ("--sep", ";", "--decimal", ",", "--missing-values", "n/a", "--missing", "drop")
    result = run(*words, *more, "--reference", "city=Rome", "--draws", 500)
    assert result.exit_code == 0, result.output
    assert "city with Rome" in result.stdout
    assert load_model(tmp_path / "m.latlin").encoding.names == ["age", "dose", "city=Bonn", "city=Oslo"]
    result = run(*words, *more, "--coding", "sum")
    assert "compared with the mean of its levels" in result.stdout
    assert_told(run(*words, *more, "--reference", "Rome"), "reference must be COLUMN=LEVEL, got 'Rome'")
    assert_told(run(*words, "--sep", ";;"), "sep must be one character, got ';;'")


def test_odd_cells_among_decimal_commas_are_named(frame, tmp_path):
    """One cell that is no number leaves the commas of all others to be read here."""
    odd = frame[["age", "dose", "outcome"]].astype(object)
    odd = odd.assign(**{name: [f"{value:.3f}".replace(".", ",") for value in frame[name]] for name in ("age", "dose")})
    odd.loc[3, "age"], odd.loc[7, "dose"] = "?", "none yet"
    odd.to_csv(tmp_path / "odd.csv", index=False, sep=";")
    habits = ("--sep", ";", "--decimal", ",", "--folds", 0, "--prior-scale", 1.0, "--engine", "laplace")
    words = ("fit", tmp_path / "odd.csv", "-t", "outcome", *habits, "--out", tmp_path / "m.latlin")
    told = run(*words)
    assert_told(told, "column 'age': 1 of", "'?' in row 4", "--missing-values '?'", "'none yet' in row 8")
    about = run(*words[:3], "dose", *habits, "--out", tmp_path / "m.latlin")
    assert_told(about, "the target 'dose': 1 of", "'none yet' in row 8")
    known = run(*words, "--missing-values", "?,none yet", "--missing", "mean")
    assert known.exit_code == 0, known.output


def test_odd_cells_of_the_target_and_of_features_are_told_together(frame, tmp_path):
    odd = frame[["age", "weight"]].astype(object)
    odd.iloc[4, 1], odd.iloc[7, 0] = "none yet", "?"
    odd.to_csv(tmp_path / "odd.csv", index=False)
    out = ("--out", tmp_path / "m.latlin", "--folds", 0)
    for more in ((), ("--family", "robust")):
        told = run("fit", tmp_path / "odd.csv", "-t", "weight", *out, *more)
        assert_told(told, "the target 'weight': 1 of 120 cells are not numbers: 'none yet' in row 5")
        assert_told(told, "column 'age': 1 of 120 cells are not numbers: '?' in row 8")
    prices = frame[["age"]].assign(price=[f"${1000 + 3 * age:,.2f}" for age in frame["age"]])
    prices.to_csv(tmp_path / "p.csv", index=False)
    read = run("fit", tmp_path / "p.csv", "-t", "price", "--numbers", "price", "--family", "linear", *out)
    assert read.exit_code == 0, read.output
    assert "'age' copies the target" in read.stdout


def test_compare_names_a_feature_that_tells_the_target(frame, tmp_path):
    score = frame["grade"] * 10 + np.random.default_rng(0).uniform(0, 9, len(frame))
    frame[["age", "grade"]].assign(score=score).to_csv(tmp_path / "d.csv", index=False)
    words = ("-t", "grade", "--family", "ordinal", "--engine", "laplace", "--prior-scale", 1.0, "--folds", 2, "-q")
    result = run("compare", tmp_path / "d.csv", *words)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "Be careful. Every class of the target has a range of 'score' of its own. Leave it out if it was" in told
    assert "Be careful" not in run("compare", tmp_path / "d.csv", *words, "--drop", "score").stdout


def test_compare_by_group_and_by_time(folder, frame, tmp_path):
    rng = np.random.default_rng(0)
    who = rng.integers(0, 6, len(frame))
    data = frame.assign(who=[f"p{i}" for i in who], day=pandas.date_range("2020-01-01", periods=len(frame)))
    data.to_csv(tmp_path / "d.csv", index=False)
    words = ("--family", "logistic", "--engine", "laplace,gkl", "--prior-scale", 1.0, "--folds", 3, "-q")
    by_group, by_time = ("--group", "who", "--drop", "day"), ("--time", "day", "--drop", "who")
    for more, told in ((by_group, "held out together"), (by_time, "earlier 'day' only")):
        result = run("compare", tmp_path / "d.csv", "-t", "outcome", *words, *more)
        assert result.exit_code == 0, result.output
        assert told in result.stdout
        assert "Not told apart from the best, within 2 standard errors: logistic by" in result.stdout
    wrong = run("compare", tmp_path / "d.csv", "-t", "outcome", *words, "--group", "team")
    assert_told(wrong, "the table has no column 'team'")


def test_compare_says_which_evidences_are_of_another_kind(folder, monkeypatch):
    words = ("--family", "linear,robust", "--engine", "gkl", "--missing", "mean", "-q")
    estimators = {"linear": "integrate", "robust": "maximise"}
    made = compare_module.make_estimator

    def make(target, *options):
        return made(target, *options).set_params(hyperparameters=estimators[target.family])

    monkeypatch.setattr(compare_module, "make_estimator", make)
    result = run("compare", folder / "weight.csv", "-t", "weight", *words, "--folds", 2)
    assert result.exit_code == 0, result.output
    assert "Log evidences of robust by gkl are those of the most probable scales" in result.stdout.replace("\n", " ")
    result = run("compare", folder / "weight.csv", "-t", "weight", *words, "--folds", 0)
    assert "most probable scales" not in result.stdout


def test_compare_notes_what_does_not_apply(folder, tmp_path):
    words = ("--folds", 2, "--prior-scale", 1.0, "--engine", "laplace", "--family", "sparse,linear", "-q")
    result = run("compare", folder / "weight.csv", "-t", "weight", *words, "--out", tmp_path / "c.csv")
    assert result.exit_code == 0, result.output
    table = pandas.read_csv(tmp_path / "c.csv").set_index("family")
    assert np.isfinite(table.loc["linear", "held out"])
    assert np.isnan(table.loc["sparse", "held out"])
    assert "have a kink; use engine" in table.loc["sparse", "note"]
    assert_told(
        run("compare", folder / "weight.csv", "-t", "weight", "--family", "linear,poisson"), "cannot be compared"
    )


def test_mistakes_are_told_in_a_sentence(model, folder, tmp_path):
    data, out = folder / "outcome.csv", tmp_path / "m.latlin"
    assert_told(run("fit", tmp_path / "no.csv", "-t", "y"), "there is no file")
    assert_told(run("fit", data, "-t", "nothing", "--out", out), "no column 'nothing'; it has 'age'")
    assert_told(run("fit", data, "-t", "outcome", "--family", "cox", "--out", out), "family must be one of")
    assert_told(run("fit", data, "-t", "outcome", "--engine", "mcmc", "--out", out), "engine must be one of")
    assert_told(run("fit", data, "-t", "outcome", "--prior-scale", "wide", "--out", out), "prior-scale must be 'auto'")
    assert_told(run("fit", data, "-t", "outcome", "--missing", "guess", "--out", out), "missing must be one of")
    assert_told(run("fit", data, "-t", "city", "--family", "linear", "--out", out), "must hold finite numbers")
    assert_told(
        run("fit", data, "-t", "outcome", "--out", tmp_path / "no" / "m.latlin", "--folds", 0), "there is no folder"
    )
    for command in (("predict", model[0], data), ("summary", model[0])):
        assert_told(
            run(*command, "--interval", 90), "interval must lie strictly between 0 and 1 (0.9 for 90 %), got 90"
        )
    assert_told(run("predict", data, data), "is not a model written by 'latlin fit'")
    assert_told(run("report", tmp_path / "no.latlin"), "there is no file")
    assert_told(run("report", model[0], "--out", tmp_path), "is a folder; expected the name of a file")
    assert_told(run("fit", folder, "-t", "y"), "is a folder; expected a file, or a pattern", "*.parquet")
    assert_told(run("fit", data, "-t", "outcome", "--folds", 1), "folds must be 0", "got 1")
    assert_told(run("compare", data, "-t", "outcome", "--engine", "gkl,mcmc"), "engine must be one of", "'mcmc'")
    assert_told(run("compare", data, "-t", "outcome", "--folds", 999), "at most the number of rows, 120, got 999")
    assert_told(run("compare", data, "-t", "outcome", "--out", tmp_path / "c.doc"), "is no table by its name")
    assert_told(run("demo", "--out", data), "out must be a folder")
    assert not list(tmp_path.iterdir())


def test_long_work_is_not_begun_for_a_place_that_is_none(folder, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("the table was read")

    monkeypatch.setattr("latlin.datasets.table.read_table", never)
    for command in ("fit", "compare"):
        out = tmp_path / "no" / "m.csv"
        assert_told(run(command, folder / "outcome.csv", "-t", "outcome", "--out", out), "there is no folder")


def test_texts_that_are_not_utf8_and_columns_that_are_taken(model, frame, tmp_path):
    (tmp_path / "latin.csv").write_bytes("name,y\nJosé,1\nAnna,2\n".encode("latin-1"))
    assert_told(run("fit", tmp_path / "latin.csv", "-t", "y"), "byte 0xe9 is no UTF-8 text; save it as UTF-8")
    frame.assign(**{"predicted_P(ill)": 1.0}).to_csv(tmp_path / "taken.csv", index=False)
    words = ("predict", model[0], tmp_path / "taken.csv", "--keep")
    assert_told(run(*words), "has a column 'predicted_P(ill)' already", "--keep")


def test_a_comparison_keeps_the_evidence_where_rows_cannot_be_held_out(tmp_path):
    few = pandas.DataFrame({"x": np.arange(8.0), "y": ["a"] * 7 + ["b"]})
    few.to_csv(tmp_path / "few.csv", index=False)
    words = ("--family", "logistic", "--engine", "laplace", "--prior-scale", 1.0, "--out", tmp_path / "c.csv")
    assert run("compare", tmp_path / "few.csv", "-t", "y", *words).exit_code == 0
    row = pandas.read_csv(tmp_path / "c.csv").iloc[0]
    assert np.isfinite(row["log evidence"])
    assert np.isnan(row["held out"])
    assert "class b has one row only" in row["note"]


def test_usage_mistakes_have_exit_code_two(folder):
    assert run("fit", folder / "outcome.csv").exit_code == 2
    assert run("fly").exit_code == 2


def test_debug_shows_where(tmp_path):
    result = run("fit", tmp_path / "no.csv", "-t", "y", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_new_rows_that_do_not_fit_are_told(model, frame, tmp_path):
    new = frame[["age", "dose", "city"]].head(3)
    new.drop(columns="dose").to_csv(tmp_path / "a.csv", index=False)
    assert_told(run("predict", model[0], tmp_path / "a.csv"), "lacks 'dose'")
    new.assign(city=["Oslo", "Paris", "Rome"]).to_csv(tmp_path / "b.csv", index=False)
    assert_told(run("predict", model[0], tmp_path / "b.csv"), "'Paris' in row 2", "never seen")


def test_damaged_and_later_files_are_refused(model, folder, tmp_path):
    whole = model[0].read_bytes()
    (tmp_path / "cut.latlin").write_bytes(whole[: len(whole) // 2])
    assert_told(run("summary", tmp_path / "cut.latlin"), "not a readable latlin archive")
    for name, change, words in [
        ("later", {"format": 99}, "upgrade"),
        ("odd", {"facts": {}}, "card that cannot be read"),
        ("bad", {"target": {"name": 3}}, "card that cannot be read"),
    ]:
        path = tmp_path / f"{name}.latlin"
        kind, header, arrays = read_archive(model[0])
        write_archive(path, kind, header | {"card": header["card"] | change}, arrays)
        assert_told(run("summary", path), words)
    kind, header, arrays = read_archive(model[0])
    del header["attributes"]["encoding_"]
    write_archive(tmp_path / "bare.latlin", kind, header, arrays)
    assert_told(run("summary", tmp_path / "bare.latlin"), "it does not hold how a table becomes numbers")


def test_missing_values_when_fitting(frame, tmp_path):
    holes = frame[["age", "city", "weight"]].copy()
    holes.loc[:4, "age"], holes.loc[3:5, "city"], holes.loc[9, "weight"] = np.nan, None, np.nan
    holes.to_csv(tmp_path / "h.csv", index=False)
    words = ("fit", tmp_path / "h.csv", "-t", "weight", "--folds", 0, "--out", tmp_path / "m.latlin")
    assert_told(run(*words), "target 'weight' is missing in 1 of 120 rows")
    dropped = run(*words, "--missing", "drop")
    assert "6 rows with missing values were left out ('age' 5, 'city' 3)" in dropped.stdout
    assert "113 rows" in dropped.stdout
    filled = run(*words, "--missing", "impute")
    assert "became the mean or the most frequent level of their column: 'age' 5, 'city' 3" in filled.stdout
    assert "119 rows" in filled.stdout


def test_hostile_names_stay_text(frame, tmp_path):
    evil = frame[["age", "weight"]].rename(columns={"age": "[red]<script>\x1b[31m", "weight": "[bold]y"})
    evil.to_csv(tmp_path / "e.csv", index=False)
    path = tmp_path / "m.latlin"
    result = run("fit", tmp_path / "e.csv", "-t", "[bold]y", "--out", path, "--folds", 2)
    assert result.exit_code == 0, result.output
    assert "[red]<script>" in result.stdout
    assert "\x1b" not in result.stdout
    assert run("report", path, "--out", tmp_path / "r.html").exit_code == 0
    page = (tmp_path / "r.html").read_text("utf8")
    assert "<script" not in page
    assert "[red]&lt;script&gt;" in page


def test_parquet_in_and_out(model, frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame[["age", "dose", "city"]].head(5).to_parquet(tmp_path / "n.parquet")
    result = run("predict", model[0], tmp_path / "n.parquet", "--out", tmp_path / "p.parquet")
    assert result.exit_code == 0, result.output
    assert len(pandas.read_parquet(tmp_path / "p.parquet")) == 5


def test_a_class_too_rare_to_split_is_fitted_with_a_note(frame, tmp_path):
    rare = frame[["age", "dose"]].assign(kind=["a"] + ["b"] * 119)
    rare.to_csv(tmp_path / "r.csv", index=False)
    result = run("fit", tmp_path / "r.csv", "-t", "kind", "--prior-scale", 1, "--out", tmp_path / "m.latlin")
    assert result.exit_code == 0, result.output
    assert "No rows were held out: the class a has one row only" in result.stdout


def test_version():
    assert "latlin 0" in run("--version").output


def test_texts_that_a_spreadsheet_would_run_are_guarded_when_asked(frame, tmp_path):
    evil = frame[["age", "city", "weight"]].assign(city=np.where(frame["city"] == "Oslo", "=1+1", "@x"))
    evil.rename(columns={"age": "+age"}).to_csv(tmp_path / "e.csv", index=False)
    path = tmp_path / "m.latlin"
    assert run("fit", tmp_path / "e.csv", "-t", "weight", "--out", path, "--folds", 0).exit_code == 0
    plainly = run("predict", path, tmp_path / "e.csv", "--keep").stdout
    guarded = run("predict", path, tmp_path / "e.csv", "--keep", "--safe-csv").stdout
    assert "+age," in plainly.splitlines()[0]
    assert ",=1+1," in plainly
    assert guarded.startswith("'+age,")
    assert ",'=1+1," in guarded
    assert ",'@x," in guarded
    assert guarded.replace("'", "") == plainly
    run("predict", path, tmp_path / "e.csv", "--keep", "--safe-csv", "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == guarded
    run("summary", path, "--safe-csv", "--out", tmp_path / "s.csv")
    assert "'+age" in (tmp_path / "s.csv").read_text()


@pytest.mark.parametrize(("family", "count"), [("linear", 20_500), ("logistic", 3000)])
def test_very_many_columns_are_fitted_in_seconds(tmp_path, family, count):
    values = np.random.default_rng(0).standard_normal((6, count + 1))
    frame = pandas.DataFrame(values, columns=[*(f"x{j}" for j in range(count)), "y"])
    frame["y"] = (frame["y"] > 0).astype(int) if family == "logistic" else frame["y"]
    frame.to_csv(tmp_path / "wide.csv", index=False, float_format="%.3f")
    options = ("--target", "y", "--family", family, "--folds", "2", "--out", tmp_path / "model.latlin")
    started = time.process_time()
    result = run("fit", tmp_path / "wide.csv", *options)
    assert result.exit_code == 0, result.stderr
    assert f"6 rows, {count} features" in result.stdout
    assert time.process_time() - started < 30.0


def test_a_bar_is_there_from_the_first_second(tmp_path, frame, monkeypatch):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    shown = []

    @contextmanager
    def noted(words, total, quiet=False):
        shown.append(words)
        yield lambda told=None: shown.append(told)

    for module in (app_module, explore_module, models, options_module, prepare_module, formula_module):
        monkeypatch.setattr(module, "show_steps", noted)
    result = run("fit", tmp_path / "rows.csv", "--target", "weight", "--folds", 2, "--out", tmp_path / "model.latlin")
    assert result.exit_code == 0, result.stderr
    assert shown[:4] == ["Loading", "Reading", "Encoding", "Fitting"]
    assert shown[-2:] == ["Done", "Writing"]
    for command, *more in (("fit", "--out", tmp_path / "other.latlin"), ("compare", "--formula", "weight ~ 1")):
        shown.clear()
        result = run(command, tmp_path / "rows.csv", "--formula", "weight ~ age", "--family", "gaussian", *more)
        assert result.exit_code == 0, result.stderr
        assert shown[:3] == ["Loading", "Reading", "Fitting" if command == "fit" else "Comparing"]


DAMAGED = {
    "empty": (b"", "cannot be read as a table"),
    "names alone": (b"a,y\n", "has column names but no rows"),
    "one column": (b"y\n1\n2\n3.5\n4\n", "no column besides 'y'"),
    "one row": (b"a,y\n1,2\n", "at least two"),
    "no target": (b"a,y\n1,\n2,\n3,\n", "target"),
    "two of one name": (b"a,a,y\n1,2,3\n4,5,6.5\n", "'a' occurs more than once"),
    "no text": (bytes(range(128, 256)) * 20, "no UTF-8 text"),
    "zeros": (bytes(500), "no rows"),
    "infinite": (b"a,y\n1e400,1\n2,3.5\n4,5\n", "column 'a' must hold finite numbers"),
    "too large": (b"a,y\n1e300,1\n2,3.5\n4,5\n", "X must hold numbers of at most 1e+140"),
    "longer rows": (b"a,y\n1,2\n1,2,3,4\n5\n", "Expected 2 fields in line 3, saw 4"),
    "an open quote": (b'a,y\n"1,2\n3,4\n', "cannot be read as a table"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_gets_one_sentence(name, model, tmp_path):
    content, words = DAMAGED[name]
    (tmp_path / "rows.csv").write_bytes(content)
    result = run("fit", tmp_path / "rows.csv", "--target", "y", "--family", "linear", "--out", tmp_path / "new.latlin")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "new.latlin").exists()
    assert run("predict", model, tmp_path / "rows.csv", "--out", tmp_path / "p.csv").exit_code == 1


def test_dates_prices_and_gaps_of_a_semicolon_table(frame, tmp_path):
    rng = np.random.default_rng(1)
    table = frame[["age", "weight"]].copy()
    table["when"] = pandas.date_range("2021-01-01", periods=len(table), freq="8D").strftime("%d.%m.%Y")
    table["price"] = [f"{k:,}".replace(",", ".") + ",50 €" for k in rng.integers(900, 2000, len(table))]
    table.loc[::10, "age"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    words = ["fit", tmp_path / "t.csv", "--target", "weight", "--sep", ";", "--decimal", ",", "--folds", "0"]
    words += ["--out", tmp_path / "m.latlin"]
    assert_told(
        run(*words), "latlin: 3 things need a decision:\n- column 'when' holds 120 different texts", "--dates when",
        "column 'price' holds", "--numbers price",
    )  # fmt: skip
    words += ["--dates", "when", "--numbers", "price"]
    assert_told(run(*words), "missing values: 'age' 12 of 120 rows")
    fitted = run(*words, "--missing", "model")
    assert fitted.exit_code == 0, fitted.stderr
    assert "by mixed factors" in fitted.stdout
    found = load_model(tmp_path / "m.latlin").encoding
    assert found.names == ["age", "when (years)", "when (season, sin)", "when (season, cos)",
                           *(f"when={day}" for day in DAYS[1:]), "price"]  # fmt: skip
    asked = run("predict", tmp_path / "m.latlin", tmp_path / "t.csv", "--sep", ";", "--decimal", ",")
    assert asked.exit_code == 0, asked.stderr
    told = pandas.read_csv(io.StringIO(asked.stdout))
    # the same file in Python reads the table as it comes
    by_hand = latlin.load(tmp_path / "m.latlin").predict(pandas.read_csv(tmp_path / "t.csv", sep=";", decimal=","))
    np.testing.assert_allclose(told["weight"], by_hand, rtol=1e-10)


def test_all_problems_of_a_file_are_in_one_message(frame, tmp_path):
    table = frame.drop(columns=["outcome", "visits", "grade"]).assign(name=[f"n{k}" for k in range(len(frame))])
    table.loc[3, "weight"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    told = run("fit", tmp_path / "t.csv", "--target", "weight")
    assert_told(told, "column 'name' holds 120 different texts", "the target 'weight' is missing in 1 of 120 rows")
    table.drop(columns="name").assign(age=frame["age"].where(frame.index > 1)).to_csv(tmp_path / "t.csv", index=False)
    told = run("fit", tmp_path / "t.csv", "--target", "weight")
    assert_told(told, "missing values: 'age' 2 of 120 rows", "the target 'weight' is missing in 1 of 120 rows")


def test_a_table_of_frequencies_is_a_table_of_its_rows(tmp_path):
    rng = np.random.default_rng(0)
    rows = pandas.DataFrame({"sex": rng.choice(["f", "m"], 90), "answer": rng.choice(["no", "yes"], 90)})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.value_counts().rename("n").reset_index().to_csv(tmp_path / "table.csv", index=False)
    evidence = []
    for name, more in (("rows", ()), ("table", ("--frequency", "n"))):
        words = ("fit", tmp_path / f"{name}.csv", "--target", "answer", "--folds", 0, "--out", tmp_path / name, *more)
        result = run(*words)
        assert result.exit_code == 0, result.output
        assert "90 rows, 1 features" in result.output or "90 rows, 1 feature," in result.output
        evidence.append(latlin.load(tmp_path / name).log_evidence_)
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-6)


def test_odd_cells_and_gaps_and_the_family_are_one_message(tmp_path):
    frame = pandas.DataFrame({"grade": np.tile([1, 2, 3], 20), "x": [str(k) for k in range(60)], "z": np.arange(60.0)})
    frame.loc[17, "x"], frame.loc[4, "z"] = "none", np.nan
    frame.to_csv(tmp_path / "odd.csv", index=False)
    said = run("fit", tmp_path / "odd.csv", "--target", "grade").stderr
    for part in ("only 3 different whole numbers", "'none' in row 18", "missing values: 'z' 1 of 60 rows"):
        assert part in said
    # counts over an exposure are no grades
    chosen = run("fit", tmp_path / "odd.csv", "--target", "grade", "--exposure", "z", "--missing", "mean")
    assert "only 3" not in chosen.stderr
