"""Data frames as they come: encoded as on the command line, kept with the model, the same for new rows."""

import numpy as np
import pandas
import pytest
from scipy.stats import norm

import latlin
from latlin.datasets import learn_encoding
from latlin.linear import (
    BayesianBinomialRegression,
    BayesianCountRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianSurvivalRegression,
)

rng = np.random.default_rng(0)
N = 90
FRAME = pandas.DataFrame(
    {
        "age": rng.normal(50, 10, N),
        "city": rng.choice(["Oslo", "Rome", "Bonn"], N),
        "size": pandas.Categorical(rng.choice(["s", "l"], N)),
        "works": rng.random(N) < 0.5,
        "visits": pandas.array(rng.integers(0, 5, N), dtype="Int64"),
    }
)
Y = 0.1 * FRAME["age"] + 2.0 * (FRAME["city"] == "Rome") + rng.standard_normal(N)
NAMES = ["age", "city=Oslo", "city=Rome", "size=s", "works", "visits"]


def test_a_frame_with_texts_is_encoded_as_on_the_command_line(tmp_path):
    model = BayesianLinearRegression().fit(FRAME, Y)
    matrix = learn_encoding(FRAME.assign(y=Y), "y").encode(FRAME).matrix
    by_hand = BayesianLinearRegression().fit(matrix, Y)
    assert list(model.feature_names_in_) == NAMES
    np.testing.assert_array_equal(model.coef_, by_hand.coef_)
    np.testing.assert_array_equal(model.predict(FRAME), by_hand.predict(matrix))
    np.testing.assert_array_equal(model.predict(matrix), by_hand.predict(matrix))
    model.save(tmp_path / "m.npz")
    again = latlin.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.predict(FRAME.iloc[::-1]), model.predict(FRAME)[::-1])
    with pytest.raises(ValueError, match="'city' has the level 'Paris' in row 1, which the model has never seen"):
        model.predict(FRAME.head(2).assign(city="Paris"))


def test_summaries_become_frames_and_speak_of_columns_of_levels():
    summary = BayesianLinearRegression().fit(FRAME, Y).summary()
    assert list(summary.to_frame().index) == [*NAMES, "intercept"]
    assert "city, compared with Bonn: joint p = " in summary.footer


def test_a_summary_says_what_is_modelled():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((90, 1)) + 3.0
    latent = 1.5 * x[:, 0] + rng.standard_normal(90)
    grades = np.array(["a low", "b-mid", "c high"])[np.digitize(latent, [4.0, 5.5])]
    model = BayesianOrdinalRegression(prior_scale=2.0).fit(x, grades)
    said = model.summary().footer
    assert "probit link, cut points a low | b-mid at " in said
    # the cut points stand beside x·coef_
    low, high = (float(part.split(",")[0].split()[0]) for part in said.split(" at ")[1:3])
    share = norm.cdf(low - x[:5] @ model.coef_.ravel()), norm.cdf(x[:5] @ model.coef_.ravel() - high)
    np.testing.assert_allclose(model.predict_proba(x[:5])[:, [0, 2]], np.column_stack(share), atol=0.05)
    binary = BayesianLogisticRegression(prior_scale=1.0, engine="laplace").fit(x, latent > 4.5)
    assert "coefficients change the log odds of class True (against False) (logit link)" in binary.summary().footer
    counts = BayesianPoissonRegression(prior_scale=1.0, engine="laplace").fit(x, rng.poisson(3.0, 90))
    assert "the logarithm of the mean" in counts.summary().footer


def test_a_strong_effect_of_three_levels_is_seen_as_a_whole():
    from scipy.stats import f_oneway

    levels = np.repeat(["a", "b", "c"], 40)
    y = np.repeat([0.0, 0.9, 1.1], 40) + np.random.default_rng(3).standard_normal(120)
    model = BayesianLinearRegression(prior_scale=10.0).fit(pandas.DataFrame({"group": levels}), y)
    joint = model.joint(["group=b", "group=c"])
    assert model.joint("group") == joint
    classical = f_oneway(*(y[levels == level] for level in "abc"))
    # a wide prior and many rows: χ² is (K − 1) F up to the uncertainty of the noise
    assert joint.df == 2
    assert joint.statistic == pytest.approx(2.0 * classical.statistic, rel=0.05)
    assert joint.probability < 1e-4
    with pytest.raises(ValueError, match="names must be features of the model"):
        model.joint(["group=a"])


def test_equal_levels_of_one_hot_coding_are_the_same_question():
    levels = np.random.default_rng(4).choice(list("abc"), 200)
    y = (levels == "c") + np.random.default_rng(5).standard_normal(200)
    frame = pandas.DataFrame({"group": levels, "y": y})
    treated, each = (learn_encoding(frame, "y", coding=c).encode(frame).matrix for c in ("treatment", "one-hot"))
    model = BayesianLinearRegression(prior_scale=100.0, noise_scale=1.0)
    first = model.fit(treated, y).joint(["group=b", "group=c"])
    second = model.fit(each, y).joint(["group=a", "group=b", "group=c"], equal=True)
    assert second.statistic == pytest.approx(first.statistic, rel=1e-3)


def test_gaps_are_named():
    with pytest.raises(ValueError, match="there are missing values: 'city' 1 of 90 rows"):
        BayesianLinearRegression().fit(FRAME.assign(city=FRAME["city"].where(FRAME.index > 0)), Y)


def test_tables_of_polars_are_frames_too():
    polars = pytest.importorskip("polars")
    y = Y.median() < Y
    model = BayesianLogisticRegression(prior_scale=1.0).fit(FRAME, y)
    table = polars.DataFrame({name: FRAME[name].tolist() for name in FRAME.columns})
    np.testing.assert_allclose(model.predict_proba(table), model.predict_proba(FRAME))
    np.testing.assert_allclose(BayesianLogisticRegression(prior_scale=1.0).fit(table, y).coef_, model.coef_)


COUNTED = FRAME.assign(days=rng.integers(1, 30, N))
COUNTED["seen"] = rng.poisson(0.2 * COUNTED["days"])


def test_what_belongs_to_rows_can_be_a_column_by_its_name(tmp_path):
    named = BayesianCountRegression("poisson", prior_scale=1.0).fit(COUNTED, "seen", exposure="days")
    by_hand = BayesianCountRegression("poisson", prior_scale=1.0).fit(
        COUNTED.drop(columns=["seen", "days"]), COUNTED["seen"], exposure=COUNTED["days"]
    )
    np.testing.assert_array_equal(named.coef_, by_hand.coef_)
    assert named.columns_ == {"y": "seen", "exposure": "days"}
    # new rows bring their exposures in the same column, or as numbers
    new = COUNTED.head(4)
    asked = by_hand.predict(new.drop(columns=["seen", "days"]), exposure=new["days"])
    np.testing.assert_array_equal(named.predict(new), asked)
    np.testing.assert_array_equal(named.predict(new.drop(columns="days"), exposure=new["days"]), asked)
    np.testing.assert_array_equal(
        named.log_predictive_density(new, "seen"),
        by_hand.log_predictive_density(new.drop(columns=["seen", "days"]), new["seen"], exposure=new["days"]),
    )
    with pytest.raises(ValueError, match="no column 'days', and the model was fitted with exposure='days'"):
        named.predict(new.drop(columns="days"))
    with pytest.raises(ValueError, match="the table has no column 'weeks'; it has 'age'"):
        named.fit(COUNTED, "seen", exposure="weeks")
    named.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(latlin.load(tmp_path / "m.npz").predict(new), asked)


def test_the_family_is_chosen_and_offsets_are_named_too():
    chosen = BayesianCountRegression(prior_scale=1.0).fit(
        COUNTED.assign(log=np.log(COUNTED["days"])), "seen", offset="log"
    )
    plain = BayesianCountRegression(prior_scale=1.0).fit(
        COUNTED.drop(columns=["seen"]), COUNTED["seen"], offset=np.log(COUNTED["days"])
    )
    assert chosen.family_ == plain.family_
    np.testing.assert_allclose(chosen.coef_, plain.coef_)
    assert "log" in chosen.columns_.values()


def test_trials_events_and_labels_are_named():
    table = FRAME.assign(won=rng.binomial(5, 0.4, N), played=5, time=rng.exponential(2.0, N), seen=rng.random(N) < 0.7)
    rates = BayesianBinomialRegression(prior_scale=1.0).fit(table[["age", "won", "played"]], "won", trials="played")
    plain = BayesianBinomialRegression(prior_scale=1.0).fit(table[["age"]], table["won"], trials=5)
    np.testing.assert_array_equal(rates.coef_, plain.coef_)
    np.testing.assert_array_equal(rates.predict(table), plain.predict(table[["age"]], trials=5))
    lived = BayesianSurvivalRegression("weibull", prior_scale=1.0).fit(
        table[["age", "time", "seen"]], "time", event="seen"
    )
    assert lived.columns_ == {"y": "time", "event": "seen"}
    assert list(lived.feature_names_in_) == ["age"]
    labelled = BayesianLogisticRegression(prior_scale=1.0).fit(table[["age", "city"]], "city")
    assert labelled.classes_.tolist() == ["Bonn", "Oslo", "Rome"]
    assert labelled.log_predictive_density(table.head(3), "city").shape == (3,)


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator", "model"])
def test_gaps_are_treated_as_asked(missing, tmp_path):
    gappy = FRAME.assign(
        age=FRAME["age"].where(FRAME.index % 7 > 0), city=FRAME["city"].where(FRAME.index % 11 > 0), y=Y
    )
    model = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(gappy, "y", missing=missing)
    encoding = learn_encoding(gappy, "y", missing=missing)
    found = encoding.encode(gappy)
    by_hand = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(found.matrix, Y[found.kept])
    np.testing.assert_allclose(model.coef_, by_hand.coef_, rtol=1e-12)
    if missing == "drop":
        with pytest.raises(ValueError, match="there are missing values: 'age' 13, 'city' 9 of 90 rows"):
            model.predict(gappy)
        return
    np.testing.assert_allclose(model.predict(gappy), by_hand.predict(found.matrix))
    # what is encoded already stays as it is
    np.testing.assert_allclose(model.predict(found.matrix), by_hand.predict(found.matrix))
    model.save(tmp_path / "m.npz")
    np.testing.assert_allclose(latlin.load(tmp_path / "m.npz").predict(gappy.head(20)), model.predict(gappy.head(20)))


def test_arrays_with_gaps_and_rows_without_a_target():
    X = rng.standard_normal((60, 3))
    X[::9, 1] = np.nan
    y = np.nan_to_num(X) @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(60)
    model = BayesianLinearRegression(prior_scale=1.0).fit(X, y, missing="indicator")
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x1 missing"]
    assert model.predict(X).shape == (60,)
    with pytest.raises(ValueError, match="missing values: 'x1' 7 of 60 rows"):
        BayesianLinearRegression().fit(X, y, missing="error")
    holes = FRAME.assign(y=Y.where(FRAME.index > 4))
    left = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(holes, "y", missing="drop")
    known = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(FRAME[5:], Y[5:])
    np.testing.assert_allclose(left.coef_, known.coef_)
    with pytest.raises(ValueError, match="y is missing in 5 of 90 rows"):
        BayesianLinearRegression().fit(holes, "y")
    with pytest.raises(ValueError, match=r"'name' holds 90 different texts.*\n- y is missing in 5 of 90 rows"):
        BayesianLinearRegression().fit(holes.assign(name=[f"n{k}" for k in range(90)]), "y")
    with pytest.raises(TypeError, match="has no argument 'gaps'"):
        BayesianLinearRegression().fit(FRAME, Y, gaps="drop")
    with pytest.raises(ValueError, match="X must be a data frame, got an array"):
        BayesianLinearRegression().fit(X, "y")


def test_dates_and_prices_become_features():
    when = pandas.date_range("2019-01-01", periods=N, freq="13D")
    season = np.cos(2 * np.pi * when.day_of_year / 365.25)
    price = rng.integers(1000, 3000, N)
    table = pandas.DataFrame({"when": when, "price": [f"${p:,}.00" for p in price]})
    y = 3.0 * season + 0.01 * price + 0.1 * rng.standard_normal(N)
    model = BayesianLinearRegression().fit(table, y, dates=["when"], numbers=["price"])
    found = model.summary().to_frame()["mean"]
    assert found["when (season, cos)"] == pytest.approx(3.0, abs=0.1)
    assert found["price"] == pytest.approx(0.01, rel=0.02)


def test_tables_of_arrow_are_frames_too():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({name: FRAME[name].tolist() for name in FRAME.columns} | {"y": Y.tolist()})
    model = BayesianLinearRegression(prior_scale=1.0).fit(table, "y")
    np.testing.assert_allclose(model.coef_, BayesianLinearRegression(prior_scale=1.0).fit(FRAME, Y).coef_)
    np.testing.assert_allclose(model.predict(table), model.predict(FRAME))


def test_columns_are_named_by_any_single_thing_but_only_once():
    frame = pandas.DataFrame({0: ["a", "b", "a", "c"], ("b", 1): [1.0, 2.0, 4.0, 3.0], "y": [1.0, 2.0, 0.0, 1.0]})
    model = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(frame, "y")
    assert list(model.feature_names_in_) == ["0=b", "0=c", "('b', 1)"]
    texts = frame.set_axis(["0", "('b', 1)", "y"], axis=1)
    np.testing.assert_array_equal(model.predict(frame), model.predict(texts))
    for names, words in (
        (["a", None, "y"], "no name for the column at place 2"),
        (["a", "a", "y"], "two columns of the name 'a'"),
        (["a", "y", "y"], "two columns of the name 'y'"),
        ([1, "1", "y"], "two columns of the name '1'"),
    ):
        with pytest.raises(ValueError, match=words):
            BayesianLinearRegression().fit(frame.set_axis(names, axis=1), "y")
    with pytest.raises(ValueError, match="two columns of the name '0'"):
        model.predict(texts.set_axis(["0", "0", "y"], axis=1))


@pytest.mark.parametrize("cell", [[1.0], {}, {1}, np.ones(2)], ids=lambda cell: type(cell).__name__)
def test_a_cell_of_several_values_is_named(cell):
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, cell, None], "y": [0.0, 1.0, 2.0]})
    with pytest.raises(ValueError, match=r"column .b. must hold one number or text per cell, got .* in row 2"):
        BayesianLinearRegression().fit(frame, "y")
