"""Additive models from a table to a model, predictions, a comparison and a page."""

import re

import numpy as np
import pytest

import latlin
from latlin.additive import AdditiveModel

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli.app import app  # noqa: E402
from latlin.cli.formula import rename_columns  # noqa: E402


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 90
    clinic = np.resize([f"c{k}" for k in range(9)], n)
    level = dict(zip(np.unique(clinic), rng.normal(0, 1.0, 9), strict=True))
    x = rng.normal(size=n)
    eta = x + np.array([level[c] for c in clinic])
    place = tmp_path_factory.mktemp("formula")
    frame = pandas.DataFrame(
        {"y": eta + rng.normal(0, 0.5, n), "visits": rng.poisson(np.exp(eta)), "x": x, "clinic": clinic}
    )
    frame.to_csv(place / "data.csv", index=False)
    made = run("fit", place / "data.csv", "--formula", "y ~ x + (1 | clinic)", "--out", place / "model.latlin")
    assert made.exit_code == 0, made.output
    (place / "said.txt").write_text(made.output)
    return place


def test_fit_says_effects_hyperparameters_and_leave_one_out(folder):
    said = (folder / "said.txt").read_text()
    for word in ("Intercept", "sd(clinic)", "log evidence", "leave-one-out: log predictive density", "Saved"):
        assert word in said
    assert latlin.load(folder / "model.latlin").effects()["x"]["mean"] == pytest.approx(1.0, abs=0.3)


def test_predictions_have_intervals_for_clinics_not_seen(folder):
    pandas.DataFrame({"x": [0.0, 1.0], "clinic": ["c1", "new"]}).to_csv(folder / "new.csv", index=False)
    result = run("predict", folder / "model.latlin", folder / "new.csv", "--out", folder / "out.csv", "--keep")
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(folder / "out.csv")
    assert list(found) == ["x", "clinic", "prediction", "sd", "low", "high"]
    width = found["high"] - found["low"]
    assert width[1] > 1.5 * width[0]
    # of 90 %, and nearly normal
    np.testing.assert_allclose(width, 2 * 1.645 * found["sd"], rtol=0.03)
    assert "1 of 2 rows: 'new' of clinic was not seen in the fit" in result.stderr


def test_labels_that_were_not_seen_are_noted_and_known_ones_are_not(folder):
    known = pandas.DataFrame({"x": [0.0, 1.0, 2.0], "clinic": ["c1", "c2", "c2"]})
    known.to_csv(folder / "known.csv", index=False)
    known.assign(clinic=["C1 ", "b", "c2"]).to_csv(folder / "unknown.csv", index=False)
    silent = run("predict", folder / "model.latlin", folder / "known.csv")
    assert "not seen" not in silent.stderr
    noted = run("predict", folder / "model.latlin", folder / "unknown.csv")
    assert noted.exit_code == 0
    assert "2 of 3 rows: 'C1 ', 'b' of clinic were not seen in the fit; they are predicted with the variance of " in (
        noted.stderr
    )
    assert "('C1 ' may be 'c1')" in noted.stderr
    assert "not seen" not in noted.stdout


def test_the_help_lists_the_families_of_formulas():
    from latlin.additive.family import FAMILIES
    from latlin.cli.formula import FAMILIES as OF_FORMULAS
    from latlin.cli.options import FamilyName
    from latlin.datasets.target import FAMILIES as ALL_FAMILIES

    (option,) = FamilyName.__metadata__
    listed = set(re.split(r"[ ,;.]+", option.help))
    assert {name for name in FAMILIES if not name.startswith(("zero-", "hurdle-"))} <= listed
    without = re.search("but not (.*)", option.help)[1]
    assert set(re.findall(r"[\w-]{4,}", without)) == {*ALL_FAMILIES} - {*FAMILIES, *OF_FORMULAS, "logistic"}


def test_formulas_are_compared_in_pairs(folder):
    words = ("--formula", "y ~ x", "--formula", "y ~ x + (1 | clinic)", "--out", folder / "compared.csv")
    result = run("compare", folder / "data.csv", *words)
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(folder / "compared.csv")
    assert found["formula"][0] == "y ~ x + (1 | clinic)"
    assert found["difference"][1] < -2 * found["±"][1] < 0
    assert found["against the best"].tolist() == ["best", "worse"]


def test_formulas_that_predict_alike_are_a_tie(folder):
    result = run("compare", folder / "data.csv", "--formula", "y ~ x", "--formula", "y ~ 1 + x")
    assert result.exit_code == 0, result.output
    assert " tie " in result.output
    assert "rows of groups that were seen" not in result.output


def test_formulas_within_two_standard_errors_are_not_told_apart(folder):
    """A column that helps a little: the difference is neither nothing nor clear."""
    frame = pandas.read_csv(folder / "data.csv")
    left = frame["y"] - AdditiveModel("y ~ x + (1 | clinic)").fit(frame).predict(frame)
    frame["weak"] = 0.6 * left + 0.5 * np.random.default_rng(3).normal(size=len(frame))
    frame.to_csv(folder / "weak.csv", index=False)
    formulas = ("y ~ x + weak + (1 | clinic)", "y ~ x + (1 | clinic)")
    best, other = (AdditiveModel(formula).fit(frame).loo() for formula in formulas)
    difference, error = other.compare(best)
    assert 1.0 < -difference / error < 2.0
    words = ("--formula", formulas[0], "--formula", formulas[1], "--out", folder / "near.csv")
    result = run("compare", folder / "weak.csv", *words)
    place = pandas.read_csv(folder / "near.csv")["against the best"][1]
    assert place == f"not told apart ({-difference / error:.2f} standard errors)"
    assert place in result.output
    assert "it does not say that a term has no effect: look at its interval" in result.output


@pytest.mark.parametrize(
    ("option", "value", "instead"),
    [
        ("--prior-scale", "2", "priors="),
        ("--coding", "sum", "--reference"),
        ("--categorical", "clinic", "C(COLUMN)"),
        ("--folds", "3", "one by"),
    ],
)
def test_options_that_a_formula_does_not_take_are_refused(folder, option, value, instead):
    result = run("fit", folder / "data.csv", "--formula", "visits ~ x", "--family", "poisson", option, value)
    assert result.exit_code == 1
    assert f"{option} cannot be used with --formula" in result.stderr
    assert instead in result.stderr


def test_a_conclusion_comes_before_the_numbers(folder):
    said = (folder / "said.txt").read_text()
    assert said.index("y rises with x") < said.index("Model: fits") < said.index("log evidence")


def test_the_summary_and_the_page_show_every_term(folder):
    said = run("summary", folder / "model.latlin").output
    assert said.index("y rises with x") < said.index("Model: fits") < said.index("sd(clinic)")
    result = run("report", folder / "model.latlin", "--out", folder / "page.html")
    assert result.exit_code == 0, result.output
    page = (folder / "page.html").read_text(encoding="utf8")
    for word in ("clinic c1", "sd(clinic)", "Leave-one-out: log predictive density", "<svg"):
        assert word in page
    assert "<script" not in page


def test_a_target_or_a_formula_is_needed(folder):
    result = run("fit", folder / "data.csv")
    assert result.exit_code == 2
    assert "--formula" in result.stderr


def test_mistakes_are_one_sentence(folder):
    for words, expected in (
        (("fit", folder / "data.csv", "--formula", "y ~ x", "--exposure", "x"), "counts and amounts"),
        (("fit", folder / "data.csv", "--formula", "y | se(x) ~ 1", "--trials", "x"), "'y | se(x)'"),
        (("fit", folder / "data.csv", "--formula", "y ~ besag(clinic)"), "neighbours"),
        (("compare", folder / "data.csv", "--formula", "y ~ x"), "two formulas"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith("latlin: ")
        assert expected in result.stderr


def test_names_with_blanks_and_signs_can_be_written():
    frame = pandas.DataFrame({"pain before": [1.0], "a-b": [2.0], "y": [3.0]})
    found, formulas = rename_columns(frame, ["y ~ pain before + (1 | `a-b`)", "y ~ a-b"])
    assert list(found.columns) == ["pain_before", "a_b", "y"]
    assert formulas == ["y ~ pain_before + (1 | a_b)", "y ~ a_b"]
    both = frame.assign(a=4.0)
    assert rename_columns(both, ["y ~ a-b", "y ~ `a-b`"])[1] == ["y ~ a-b", "y ~ a_b"]
    taken = frame.assign(pain_before=0.0)
    assert list(rename_columns(taken, [])[0].columns) == ["pain before", "a_b", "y", "pain_before"]


def test_dates_in_a_formula_are_explained(folder):
    frame = pandas.read_csv(folder / "data.csv")
    frame["came"] = (pandas.Timestamp("2023-01-02") + pandas.to_timedelta(np.arange(len(frame)), "D")).strftime(
        "%d.%m.%Y"
    )
    frame.to_csv(folder / "dated.csv", index=False)
    words = ("fit", folder / "dated.csv", "--formula", "y ~ came + (1 | clinic)")
    assert "if they are dates, add a column of numbers to the table" in run(*words).stderr
    assert "--dates cannot be used with --formula: add a column of numbers" in run(*words, "--dates", "came").stderr


def test_awkward_columns_are_named_as_in_the_file_and_prices_are_no_levels(folder):
    frame = pandas.read_csv(folder / "data.csv").rename(columns={"x": "rain (mm)"})
    frame["cost"] = [f"${1000 + 7 * k:,}" for k in range(len(frame))]
    frame.loc[3, "rain (mm)"] = np.nan
    frame.to_csv(folder / "awkward.csv", index=False)
    words = ("fit", folder / "awkward.csv", "--out", folder / "awkward.latlin", "--formula")
    refused = run(*words, "y ~ rain (mm) + cost + (1 | clinic)")
    assert refused.exit_code == 1
    assert "column 'cost' holds 90 different texts in 90 rows, too many for a coefficient each" in refused.stderr
    assert "--numbers 'cost'" in refused.stderr
    assert "1 in 'rain (mm)'" in refused.stderr
    priced = run(*words, "cost ~ rain (mm) + (1 | clinic)")
    assert "it must hold numbers: read them with --numbers cost" in priced.stderr
    made = run(*words, "y ~ rain (mm) + cost + (1 | clinic)", "--numbers", "cost", "--missing", "drop")
    assert made.exit_code == 0, made.stderr
    assert "rain_mm" in made.output
    found = run("predict", folder / "awkward.latlin", folder / "awkward.csv", "--keep", "--missing", "drop")
    assert found.exit_code == 0, found.stderr
    assert "rain (mm)" in found.stdout.splitlines()[0]
    assert '"$1,000"' in found.stdout


def test_gaps_of_the_columns_of_a_formula(folder):
    frame = pandas.read_csv(folder / "data.csv")
    frame.loc[:4, "y"], frame.loc[10:15, "x"] = np.nan, np.nan
    frame.to_csv(folder / "gaps.csv", index=False, sep=";")
    words = ["fit", folder / "gaps.csv", "--formula", "y ~ x + (1 | clinic)", "--sep", ";"]
    words += ["--out", folder / "filled.latlin"]
    refused = run(*words)
    assert refused.exit_code == 1
    assert "missing" in refused.stderr
    odd = frame.astype({"y": object})
    odd.loc[20, "y"] = "absent"
    odd.to_csv(folder / "odd.csv", index=False, sep=";")
    refused = run("fit", folder / "odd.csv", *words[2:])
    assert "the target 'y': 1 of 90 cells are not numbers: 'absent' in row 21" in refused.stderr
    assert "missing cells: 5 in 'y', 6 in 'x'" in refused.stderr
    for missing, rows in (("drop", 79), ("mean", 85), ("model", 85)):
        made = run(*words, "--missing", missing)
        assert made.exit_code == 0, made.stderr
        assert f"{rows} rows" in made.output
        assert "Missing cells: 5 in 'y', 6 in 'x'" in made.output


def test_ordered_classes_are_predicted_by_their_labels(folder):
    frame = pandas.read_csv(folder / "data.csv")
    frame["grade"] = pandas.cut(frame["y"], [-np.inf, -0.7, 0.7, np.inf], labels=["a low", "b middle", "c high"])
    frame.to_csv(folder / "grades.csv", index=False)
    words = ("--formula", "grade ~ x + (1 | clinic)", "--out", folder / "grades.latlin")
    made = run("fit", folder / "grades.csv", *words)
    assert made.exit_code != 0
    assert "say which family it is, --family ordinal" in made.output
    made = run("fit", folder / "grades.csv", *words, "--family", "ordinal")
    assert made.exit_code == 0, made.output
    assert "gap(1)" in made.output
    result = run("predict", folder / "grades.latlin", folder / "grades.csv", "--out", folder / "out.csv")
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(folder / "out.csv")
    assert list(found) == ["prediction", "low", "high", "P(a low)", "P(b middle)", "P(c high)"]
    assert np.mean(found["prediction"].to_numpy() == frame["grade"].to_numpy(str)) > 0.6
    assert run("report", folder / "grades.latlin", "--out", folder / "grades.html").exit_code == 0


def test_a_hurdle_is_a_family_of_a_formula(folder):
    words = ("--formula", "visits ~ x", "--family", "hurdle-poisson", "--out", folder / "hurdle.latlin")
    made = run("fit", folder / "data.csv", *words)
    assert made.exit_code == 0, made.output
    assert "zeros" in made.output


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Falls on wards that were watched for different times, written as people write tables."""
    rng = np.random.default_rng(1)
    n = 120
    ward, shift = np.resize([f"w{k}" for k in range(10)], n), rng.choice(["day", "night"], n)
    beds, days = rng.integers(800, 3000, n), rng.integers(5, 60, n)
    rate = 0.1 * np.exp(0.7 * (shift == "night") + np.resize(rng.normal(0, 0.4, 10), n))
    frame = pandas.DataFrame(
        {
            "falls": rng.poisson(rate * days),
            "shift": shift,
            "beds": [f"{number:,}" for number in beds],
            "days watched": days,
            "ward": ward,
        }
    )
    place = tmp_path_factory.mktemp("counts")
    frame.to_csv(place / "falls.csv", index=False)
    return place


def test_the_family_of_counts_is_chosen_and_options_name_columns(counts):
    words = ["--formula", "falls ~ shift + beds + (1 | ward)", "--exposure", "days watched", "--numbers", "beds"]
    words += ["--reference", "shift=night", "--out", counts / "falls.latlin"]
    made = run("fit", counts / "falls.csv", *words)
    assert made.exit_code == 0, made.output
    assert "Family poisson was chosen by its log evidence" in made.output
    assert latlin.load(counts / "falls.latlin").effects()["shift[T.day]"]["mean"] == pytest.approx(-0.7, abs=0.3)
    result = run("predict", counts / "falls.latlin", counts / "falls.csv", "--out", counts / "out.csv", "--keep")
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(counts / "out.csv")
    per_day = found["prediction"] / found["days watched"]
    assert 0.02 < per_day.min() < per_day.max() < 1.0


def test_all_problems_of_a_formula_are_one_message(counts):
    frame = pandas.read_csv(counts / "falls.csv")
    frame["falls"] = np.minimum(frame["falls"], 4)
    frame.loc[3, "shift"] = np.nan
    frame.loc[5, "beds"] = "many"
    frame.to_csv(counts / "odd.csv", index=False)
    words = ("--formula", "falls ~ shift + beds + (1 | ward)", "--numbers", "beds", "--reference", "shift=noon")
    said = run("fit", counts / "odd.csv", *words).stderr
    for part in ("'many'", "has no level 'noon'", "only 5 different whole numbers", "1 in 'shift'"):
        assert part in said


def test_counts_with_gaps_stay_counts(counts):
    frame = pandas.read_csv(counts / "falls.csv")
    frame.loc[:2, "falls"] = np.nan
    frame.to_csv(counts / "gaps.csv", index=False)
    made = run(
        "fit", counts / "gaps.csv", "--formula", "falls ~ shift", "--missing", "drop", "--out", counts / "g.latlin"
    )
    assert made.exit_code == 0, made.output
    assert "117 rows" in made.output
    assert "was chosen by its log evidence" in made.output


def test_rows_with_gaps_are_not_predicted_unless_left_out(folder):
    frame = pandas.DataFrame({"x": [0.0, np.nan], "clinic": ["c1", "c2"]})
    frame.to_csv(folder / "holes.csv", index=False)
    refused = run("predict", folder / "model.latlin", folder / "holes.csv")
    assert refused.exit_code == 1
    assert "1 in 'x'" in refused.stderr
    found = run("predict", folder / "model.latlin", folder / "holes.csv", "--missing", "drop")
    assert len(found.stdout.strip().splitlines()) == 2


def test_wrong_names_are_said_together_with_what_was_meant_and_with_gaps(folder):
    frame = pandas.read_csv(folder / "data.csv").rename(columns={"x": "weight"})
    frame.loc[:2, "weight"] = np.nan
    frame.to_csv(folder / "named.csv", index=False)
    wrong = ("--formula", "yy ~ weigth + weight + (1 | clinik)")
    said = run("fit", folder / "named.csv", *wrong).stderr
    for name, meant in (("weigth", "weight"), ("clinik", "clinic")):
        assert f"no column {name!r} (did you mean {meant!r}?)" in said
    assert "no column 'yy'" in said
    assert "it has 'y', 'visits', 'weight', 'clinic'" in said
    assert "3 in 'weight'" in said
    dropped = run("fit", folder / "named.csv", "--formula", "y ~ weigth + (1 | clinic)", "--missing", "drop").stderr
    assert "no column 'weigth' (did you mean 'weight'?); it has 'y', 'visits', 'weight', 'clinic'" in dropped
    both = run("compare", folder / "named.csv", *wrong, "--formula", "y ~ visit").stderr
    assert "no column 'visit' (did you mean 'visits'?)" in both
    assert "no column 'clinik' (did you mean 'clinic'?)" in both
    option = run("fit", folder / "named.csv", "--formula", "visits ~ `home town`", "--exposure", "no days").stderr
    assert "no column 'home town' and no column 'no days'; it has" in option


def test_rows_to_predict_need_the_columns_of_the_formula_under_their_names(folder):
    pandas.DataFrame({"clinik": ["c1"], "w": [1.0]}).to_csv(folder / "misnamed.csv", index=False)
    said = run("predict", folder / "model.latlin", folder / "misnamed.csv").stderr
    assert "no column 'x' and no column 'clinic' (did you mean 'clinik'?); it has 'clinik', 'w'" in said


def test_a_column_that_costs_many_rows_is_named(folder):
    frame = pandas.read_csv(folder / "data.csv")
    frame["remark"] = np.resize(["late", None, None], len(frame))
    frame.loc[[0, 1], "x"] = np.nan
    frame.to_csv(folder / "remarks.csv", index=False)
    words = ("fit", folder / "remarks.csv", "--missing", "drop", "--out", folder / "r.latlin", "--formula")
    made = run(*words, "y ~ x + remark + (1 | clinic)")
    assert "61 of 90 rows were left out; 60 of these have no 'remark': a formula without it uses 59 rows more" in (
        made.output
    )
    assert "of these have no" not in run(*words, "y ~ x + (1 | clinic)").output


def test_what_fills_gaps_is_said_as_it_is(folder):
    """Marks of gaps are no choice; models of gaps are, and outcomes are never filled."""
    frame = pandas.read_csv(folder / "data.csv")
    frame.loc[:4, "y"], frame.loc[10:15, "x"] = np.nan, np.nan
    frame.to_csv(folder / "gappy.csv", index=False)
    words = ("fit", folder / "gappy.csv", "--formula", "y ~ x + (1 | clinic)", "--out", folder / "gappy.latlin")
    assert "fill the cells of columns that explain (rows without an outcome are left out)" in run(*words).stderr
    assert "use drop, mean or model" in run(*words, "--missing", "indicator").stderr
    made = run(*words, "--missing", "model")
    assert made.exit_code == 0, made.stderr
    assert "5 of 90 rows were left out" in made.output


def test_dates_of_a_curve_are_explained(folder):
    frame = pandas.read_csv(folder / "data.csv")
    frame["came"] = (pandas.Timestamp("2023-01-02") + pandas.to_timedelta(np.arange(len(frame)), "D")).astype(str)
    frame.to_csv(folder / "came.csv", index=False)
    said = run("fit", folder / "came.csv", "--formula", "y ~ s(came) + (1 | clinic)").stderr
    assert "'came' must hold numbers" in said
    assert "for dates, add a column of days since the first date" in said
    assert "for dates" not in run("fit", folder / "came.csv", "--formula", "y ~ s(clinic)").stderr
