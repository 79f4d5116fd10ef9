"""The conclusion of a report: what drives the target, how well it is predicted, what to be careful about."""

import json

import numpy as np
import pandas
import pytest

from latlin.datasets import learn_encoding
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from latlin.report import Facts, assess, gather, render
from latlin.report.words import conclusion, count_words, effects

pytest.importorskip("pandas")


def facts_of(model, frame, target, folds=3):
    encoding = learn_encoding(frame, target)
    X, y = encoding.encode(frame).matrix, frame[target].to_numpy()
    seen = assess(model, X, y, folds=folds) if folds else None
    return gather(model.fit(X, y), len(y), target=target, assessment=seen, factors=encoding.factors)


@pytest.fixture(scope="module")
def three_levels():
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "c"], 50)
    score = np.repeat([0.0, 1.0, 1.1], 50) + rng.standard_normal(150)
    return pandas.DataFrame({"group": group, "noise": rng.standard_normal(150), "score": score})


def test_a_factor_of_three_levels_counts_once(three_levels):
    facts = facts_of(BayesianLinearRegression(), three_levels, "score")
    found = effects(facts)
    assert found.differing == ["group"]
    assert found.total == 2
    assert count_words(facts).startswith(f"{found.n_clear} of 2 features")
    (line,) = facts.factors
    assert line["baseline"] == "a"
    assert line["joint"] < 1e-5
    said = conclusion(facts)
    assert "score differs between the levels of group" in said[0]
    assert "Rows that were held out are predicted better than without features" in said[1]
    assert any(line.startswith("Model: fits") for line in said)
    assert "with care" not in " ".join([*said, count_words(facts)])


def test_what_rises_falls_and_differs_is_one_sentence(three_levels):
    size = np.random.default_rng(4).standard_normal((2, 150))
    frame = three_levels.assign(up=size[0], down=size[1], score=three_levels["score"] + size[0] - size[1])
    said = conclusion(facts_of(BayesianLinearRegression(), frame, "score", folds=0))[0]
    assert "score rises with up, falls with down and differs between the levels of group." in said


def test_the_page_opens_with_it_and_survives_json(three_levels):
    facts = facts_of(BayesianLinearRegression(), three_levels, "score")
    again = Facts.from_json(json.loads(json.dumps(facts.to_json())))
    assert again == facts
    page = render(again)
    assert page.index("<h2>Conclusion") < page.index("<h2>Coefficients") < page.index("Technical part: evidence")
    assert page.index("log evidence") > page.index("Technical part: evidence")
    assert "the levels differ (joint p = " in page
    assert "Model: fits" in page
    old = {name: value for name, value in facts.to_json().items() if name not in ("checks", "factors")}
    assert Facts.from_json(old).checks == []


def test_overdispersed_counts_give_the_right_sentences():
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame({"x": rng.standard_normal(150), "count": rng.negative_binomial(1, 0.15, 150)})
    with pytest.warns(UserWarning, match="overdispersed"):
        facts = facts_of(BayesianPoissonRegression(), frame, "count")
    failed = {check.name: check for check in facts.model_checks.failed}
    assert {"dispersion", "coverage"} <= set(failed)
    assert "negative-binomial" in failed["dispersion"].remedy
    assert "too narrow" in failed["coverage"].remedy
    assert any("Model: does not fit" in line for line in conclusion(facts))


def test_features_without_any_relation_do_not_beat_the_baseline():
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame({"x": rng.standard_normal(100), "label": rng.choice(["no", "yes"], 100)})
    facts = facts_of(BayesianLogisticRegression(prior_scale=1.0, engine="laplace"), frame, "label")
    assert "baseline" in [check.name for check in facts.model_checks.cautions]
    assert "Be careful. The features do not clearly predict better" in " ".join(conclusion(facts))
    assert "1 with a caution" in render(facts)
    assert "are not predicted clearly better than without features" in conclusion(facts)[1]


def test_what_is_explained_beyond_a_common_rate_is_said_to_be_so():
    rng = np.random.default_rng(4)
    days, X = rng.integers(1, 200, 90), rng.standard_normal((90, 1))
    y, more = rng.poisson(0.3 * days * np.exp(0.3 * X[:, 0])), {"offset": np.log(days)}
    model = BayesianPoissonRegression(prior_scale=1.0, engine="laplace").fit(X, y, **more)
    seen = assess(model, X, y, folds=2, **more)
    facts = gather(model, 90, target="falls", assessment=seen)
    share = f"{100 * seen.scores['R² beyond a common rate']:.0f} %"
    assert f"explain {share} of the variance that a common rate of all rows leaves" in conclusion(facts)[1]
    assert "Held-out R² beyond a common rate" in render(facts)
    without = assess(BayesianPoissonRegression(prior_scale=1.0, engine="laplace"), X, y, folds=2)
    assert conclusion(facts.with_(assessment=without))[1].endswith("% of the variance.")


def test_a_leaked_target_is_named():
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame({"x": rng.standard_normal(80), "bill": rng.gamma(3.0, 10.0, 80)})
    facts = facts_of(BayesianLinearRegression(noise_scale=1.0), frame.assign(tax=0.2 * frame["bill"]), "bill", folds=0)
    assert "'tax' copies the target" in " ".join(conclusion(facts))
    for words in (conclusion(facts)[0], count_words(facts)):
        assert words.endswith("The model does not fit: read these effects with care.")


@pytest.mark.parametrize(("manner", "words"), [("integrate", "averaged over"), ("maximise", "fixed at their most")])
def test_what_is_done_about_scales_is_said(manner, words):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = BayesianLinearRegression(hyperparameters=manner).fit(X, X[:, 0] + rng.standard_normal(60))
    facts = gather(model, 60)
    assert words in render(facts)
    assert Facts.from_json(facts.to_json()).scales == facts.scales
