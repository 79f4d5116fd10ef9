"""Data frames as they come: encoded as on the command line, kept with the model, the same for new rows."""

import numpy as np
import pandas
import pytest

import latlin
from latlin.datasets import learn_encoding
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression

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


def test_a_strong_effect_of_three_levels_is_seen_as_a_whole():
    from scipy.stats import f_oneway

    levels = np.repeat(["a", "b", "c"], 40)
    y = np.repeat([0.0, 0.9, 1.1], 40) + np.random.default_rng(3).standard_normal(120)
    model = BayesianLinearRegression(prior_scale=10.0).fit(pandas.DataFrame({"group": levels}), y)
    joint = model.joint(["group=b", "group=c"])
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
