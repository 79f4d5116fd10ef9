"""What is said of hierarchical and additive models: clear effects, groups, predictions, verdicts."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chi2, norm

from latlin import potentials
from latlin.additive import AdditiveModel
from latlin.diagnostics.model_checks import ModelChecks
from latlin.report import additive, write_report
from latlin.report.additive import AdditiveFacts, describe_additive
from latlin.report.additive_page import render_additive
from latlin.report.markup import number

pandas = pytest.importorskip("pandas")
N = 160


def table(seed=0, spread=1.0, level=0.8):
    rng = np.random.default_rng(seed)
    g, kind = rng.integers(0, 8, N), rng.choice(["a", "b", "c"], N)
    frame = pandas.DataFrame({"x": rng.normal(size=N), "g": [f"g{k}" for k in g], "kind": kind})
    frame["flag"] = rng.choice(["no", "yes"], N)
    eta = 0.5 * frame["x"] - 0.6 * (frame["flag"] == "yes") + level * (kind == "b") + spread * rng.normal(size=8)[g]
    frame["y"] = eta + 0.5 * rng.normal(size=N)
    frame["eta"] = eta
    return frame


@pytest.fixture(scope="module")
def plain():
    frame = table()
    model = AdditiveModel("y ~ x + flag + kind + (1 | g)").fit(frame)
    return frame, model, describe_additive(model, frame)


def test_clear_effects_groups_and_verdicts_are_said(plain):
    _, _, facts = plain
    said = " ".join(facts.conclusion())
    assert "y rises with x" in said
    assert "is lower for flag yes than for no" in said
    assert "differs between the levels of kind (joint p = " in said
    assert "The 8 levels of g differ (standard deviation " in said
    assert "predicted better than by their common mean (+" in said
    assert "Model: fits (checked: residuals, slopes, noise, groups, hyperparameters, coverage, baseline)" in said
    assert "Approximation: accurate" in said


def test_a_single_term_has_no_others_beside_it(plain):
    model = AdditiveModel("y ~ x", hyperparameters="maximise").fit(plain[0])
    row = model.effects()["x"]
    size = f"by {row['mean']:.2g} per unit, 90 %: {row['low']:.2g} to {row['high']:.2g}"
    assert describe_additive(model, plain[0]).conclusion()[0] == f"y rises with x ({size})."


@pytest.mark.parametrize(("units", "step"), [(10.0, 0.1), (0.001, 1000.0)])
def test_effects_are_of_a_change_that_the_rows_show(plain, units, step):
    """A unit may be more than all rows span, or next to nothing."""
    frame = plain[0].assign(x=plain[0]["x"] / np.ptp(plain[0]["x"]) * 4.0 / units)
    model = AdditiveModel("y ~ x", hyperparameters="maximise").fit(frame)
    row = {end: step * value for end, value in model.effects()["x"].items() if end != "name"}
    size = f"by {row['mean']:.2g} per {step:g}, 90 %: {row['low']:.2g} to {row['high']:.2g}"
    assert describe_additive(model, frame).conclusion()[0] == f"y rises with x ({size})."
    assert describe_additive(model).conclusion()[0] == f"y rises with x ({size})."


def test_the_joint_probability_is_that_of_the_coefficients(plain):
    """Against the covariance of draws of the two coefficients."""
    frame, _, _ = plain
    frame = frame.assign(y=frame["y"] + 0.1 * (frame["kind"] == "c") - 0.75 * (frame["kind"] == "b"))
    model = AdditiveModel("y ~ kind", hyperparameters="maximise").fit(frame)
    draws = model.sample_posterior(100_000, random_state=0)[:, 1:]
    d, C = draws.mean(axis=0), np.cov(draws.T)
    expected = chi2.sf(d @ np.linalg.solve(C, d), 2)
    assert expected > 1e-4
    assert additive._joint(model, "kind") == pytest.approx(expected, rel=0.05)


def test_collapsed_groups_are_not_said_to_differ():
    frame = table(1, spread=0.0)
    said = " ".join(describe_additive(AdditiveModel("y ~ x + flag + kind + (1 | g)").fit(frame)).sentences)
    assert "Whether the 8 levels of g differ at all is not clear" in said


def test_slopes_of_groups_are_said_and_intercepts_have_their_place():
    """Levels differ by their slopes alone: what is said of x = 0 and of the slopes is not mixed up."""
    frame = table(3, spread=0.0)
    steep = dict(zip(sorted(set(frame["g"])), np.linspace(-2.0, 2.0, 8), strict=True))
    frame["y"] += frame["g"].map(steep) * frame["x"]
    said = additive._terms(AdditiveModel("y ~ x + (x | g)").fit(frame))
    assert said[0].startswith("Whether the 8 levels of g differ at all where x = 0 is not clear")
    assert said[1].startswith("The effect of x differs between the levels of g (standard deviation 1.")
    assert not any("Highest" in sentence for sentence in said)


def test_no_effect_is_said_to_be_none():
    frame = table(2, spread=0.0)
    rng = np.random.default_rng(5)
    frame["noise"], frame["r"] = rng.normal(size=N), rng.normal(size=N)
    facts = describe_additive(AdditiveModel("r ~ noise").fit(frame), frame)
    assert facts.sentences[0] == "No clear effect: noise."
    assert "not predicted clearly better than" in facts.sentences[-1]
    assert [check.name for check in facts.checks.cautions] == ["baseline"]
    assert "Be careful. The coefficients do not clearly predict better than the common mean of all rows" in " ".join(
        facts.conclusion()
    )


def slopes_of(model, sums):
    """Means and ends of 90 % intervals of sums of coefficients, by the covariance of all of them."""
    part, covariance = model._parts[0], np.asarray(model.posterior_.density.covariance())
    turn = part.report().toarray()
    mean, C = turn @ np.asarray(model.posterior_.density.mean)[: part.size], np.zeros((part.size, part.size))
    C = turn @ covariance[: part.size, : part.size] @ turn.T
    found = []
    for names in sums:
        a = np.array([name in names for name in part.names], float)
        found.append(a @ mean + np.array([0.0, -1.0, 1.0]) * norm.ppf(0.95) * np.sqrt(a @ C @ a))
    return found


def crossed(seed=3):
    frame = table(seed)
    frame["y"] += frame["x"] * np.where(frame["flag"] == "yes", -1.5, 0.4)
    return frame


def test_an_interaction_says_the_slope_of_each_level_and_their_difference():
    frame = crossed()
    model = AdditiveModel("y ~ x * flag + kind + (1 | g)", hyperparameters="maximise").fit(frame)
    said = describe_additive(model, frame).sentences[0]
    assert "y rises with x" not in said
    yes, no, apart = slopes_of(model, [("x", "x:flag[T.yes]"), ("x",), ("x:flag[T.yes]",)])
    assert yes[2] < 0.0 < no[1]
    size, falling, shown = (
        [number(float(v), 2) for v in abs(one)[[0, *order]]]
        for one, order in ((apart, (2, 1)), (yes, (2, 1)), (no, (1, 2)))
    )
    words = (
        f"With flag yes, y falls by {falling[0]} per unit of x (90 %: {falling[1]} to {falling[2]}); with no it rises "
    )
    words += f"by {shown[0]} ({shown[1]} to {shown[2]}); the difference is {size[0]} ({size[1]} to {size[2]})."
    assert words in said


def _slopes(frame):
    """Of least squares, each level alone, from which wide priors differ by less than what is shown."""
    return [np.polyfit(rows["x"], rows["y"], 1)[0] for rows in (frame[frame["flag"] == k] for k in ("no", "yes"))]


@pytest.mark.parametrize("written", ["flag * x", "x * flag", "C(flag) * x"])
def test_slopes_have_their_levels_however_the_interaction_is_written(written):
    """Also where categories have an order in which the reference is not the first by its name."""
    frame = crossed()
    frame["flag"] = pandas.Categorical(frame["flag"], ["yes", "no"])
    model = AdditiveModel(f"y ~ {written}", hyperparameters="maximise").fit(frame)
    (said,) = additive._coefficients(model, "y", frame)
    rising, falling = (f"by {number(abs(size), 2)}" for size in _slopes(frame))
    assert f"With flag no, y rises {rising} per unit of x" in said
    assert f"with yes it falls {falling} (" in said


def test_slopes_of_three_levels_are_compared_with_that_of_the_first():
    frame = table(3)
    frame["y"] += frame["x"] * (frame["kind"] == "c")
    model = AdditiveModel("y ~ x * kind + flag", hyperparameters="maximise").fit(frame)
    (said,) = additive._coefficients(model, "y", frame)
    rising = r"With kind b, y rises by 0\.\d+ per unit of x \(90 %: .*\); with c by 1\.\d+ \(.*\); with a by 0"
    assert re.search(rising, said)
    assert re.search(
        r"differences from a: b 0\.\d+ \(−0\.\d+ to 0\.\d+\), not clear; c 0\.\d+ \(0\.\d+ to 1\.\d\)\.", said
    )


def test_interactions_with_a_link_are_factors():
    frame, rng = crossed(), np.random.default_rng(4)
    slope = np.where(frame["flag"] == "yes", 0.6, 0.1)
    frame["n"] = rng.poisson(np.exp(1.0 + slope * frame["x"]))
    model = AdditiveModel("n ~ x * flag", "poisson", hyperparameters="maximise").fit(frame)
    (said,) = additive._coefficients(model, "the expected value of n", frame)
    row = model.effects()["x:flag[T.yes]"]
    low, high = np.exp([row["low"], row["high"]])
    assert f"the ratio is {np.exp(row['mean']):.2f} ({low:.2f} to {high:.2f})." in said
    assert "With flag yes, the expected value of n is multiplied by 1." in said
    frame["won"] = np.where(rng.random(N) < 1 / (1 + np.exp(-3.0 * slope * frame["x"])), "yes", "no")
    model = AdditiveModel("won ~ x * flag", "bernoulli", hyperparameters="maximise").fit(frame)
    (said,) = additive._coefficients(model, additive.response_words(model, frame), frame)
    assert "With flag yes, the odds of won = yes are multiplied by " in said


PAIR = "flag[T.yes]:half[T.young]"


def test_interactions_of_two_of_a_kind_have_a_number_and_a_direction():
    frame, rng = crossed(), np.random.default_rng(5)
    frame["z"], frame["half"] = rng.normal(size=N), rng.choice(["old", "young"], N)
    frame["r"] = 0.3 * rng.normal(size=N) - 0.8 * frame["x"] * frame["z"]
    frame["s"] = 0.3 * rng.normal(size=N) + 0.9 * ((frame["half"] == "young") & (frame["flag"] == "yes"))
    for formula, start, name, more in (
        ("r ~ x * z", "The change of r per unit of x falls by ", "x:z", " per unit of z (90 %: "),
        (
            "s ~ flag * half",
            "With flag yes and half young together, s is higher by ",
            "flag[T.yes]:half[T.young]",
            " than",
        ),
    ):
        model = AdditiveModel(formula, hyperparameters="maximise").fit(frame)
        size = number(abs(model.effects()[name]["mean"]), 2)
        (said,) = additive._coefficients(model, formula[0], frame)
        assert f"{start}{size}{more}" in said
    (said,) = additive._coefficients(
        AdditiveModel("eta ~ z * half", hyperparameters="maximise").fit(frame), "eta", frame
    )
    assert "the difference (young less old) is not clear: " in said


def test_slopes_that_depend_on_two_columns_are_not_said_of_one():
    frame = crossed()
    model = AdditiveModel("y ~ x * flag + x * kind", hyperparameters="maximise").fit(frame)
    (said,) = additive._coefficients(model, "y", frame)
    low, high = (number(model.effects()["x:flag[T.yes]"][end], 2) for end in ("low", "high"))
    assert f"({low} to {high})" in said
    assert "so read them together" in said
    assert "With flag" not in said


def test_a_colon_in_a_level_is_no_interaction():
    frame = crossed()
    frame["at"] = np.where(frame["flag"] == "yes", "10:30", "11:00")
    model = AdditiveModel("y ~ at", hyperparameters="maximise").fit(frame)
    assert "y is higher for at 11:00 than for 10:30" in additive._coefficients(model, "y", frame)[0].replace(
        "lower", "higher"
    )


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_overdispersed_counts_do_not_fit_and_the_remedy_fits():
    frame = table(4, spread=0.3)
    rng = np.random.default_rng(6)
    frame["n"] = rng.poisson(np.exp(1.5 + 0.3 * frame["x"]) * rng.gamma(0.7, 1 / 0.7, N))
    wrong = describe_additive(AdditiveModel("n ~ x + (1 | g)", "poisson").fit(frame))
    assert wrong.checks.verdict == "does not fit"
    assert "too narrow: choose a family with more variance" in str(wrong.checks)
    assert "The model does not fit: read these effects with care" in " ".join(wrong.conclusion())
    right = describe_additive(AdditiveModel("n ~ x + (1 | g)", "negative-binomial").fit(frame))
    assert right.checks.verdict == "fits"
    assert "with care" not in " ".join(right.conclusion())


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_true_models_of_small_counts_and_classes_fit(family):
    frame, rng = table(7, spread=0.5), np.random.default_rng(8)
    if family == "poisson":
        frame["n"] = rng.poisson(np.exp(-0.5 + frame["eta"]))
    else:
        frame["n"] = np.where(rng.random(N) < 1 / (1 + np.exp(-2 * frame["eta"])), "win", "loss")
    model = AdditiveModel("n ~ x + flag + kind + (1 | g)", family).fit(frame)
    facts = describe_additive(model, frame)
    assert facts.checks.verdict == "fits", facts.checks
    what = "the expected value of n" if family == "poisson" else "the probability of n = win"
    factor = {"poisson": "×", "bernoulli": "odds ×"}[family]
    row = model.effects()["x"]
    size = f"{factor} {np.exp(row['mean']):.2g} per unit, 90 %: {np.exp(row['low']):.2g} to {np.exp(row['high']):.2g}"
    assert f"{what} rises with x ({size})" in facts.sentences[0]


def test_the_page_opens_with_the_conclusion_and_keeps_the_evidence_for_the_technical_part(plain, tmp_path):
    frame, model, facts = plain
    write_report(tmp_path / "page.html", model, frame)
    page = (tmp_path / "page.html").read_text(encoding="utf8")
    assert page.index("Conclusion") < page.index("rises with x") < page.index("Technical part") < page.index("evidence")
    assert page.count('<div class="axis">') == page.count('<table class="coefficients">')
    assert "<script" not in page
    assert AdditiveFacts.from_card(facts.to_card()) == facts


def test_what_predicts_better_than_a_common_mean_is_named(plain):
    """The gain is that of all terms, and that of the check."""
    frame, model, facts = plain
    gain, _ = model.loo().compare(AdditiveModel("y ~ 1").fit(frame).loo())
    assert f"common mean ({gain / N:+.2f} per row), with coefficients and groups together." in facts.sentences[-1]
    (check,) = (check for check in facts.checks.checks if check.name == "baseline")
    size = f"the coefficients and groups together predict better than the common mean of all rows ({gain / N:+.3f} ±"
    assert check.sentence.startswith(size)
    frame = frame.assign(won=np.where(frame["y"] > 0, "yes", "no"), t=np.linspace(0.0, 1.0, N))
    frame["y"] += 2.0 * np.sin(6.0 * frame["t"])
    for formula, family, words in (
        ("won ~ x", "bernoulli", r"their common distribution \([+−]0\.\d\d per row\)\.$"),
        (
            "y ~ s(t) + (1 | g) + offset(x)",
            "gaussian",
            r"common mean and their offsets \(.*\), with groups and other terms tog",
        ),
    ):
        made = AdditiveModel(formula, family, hyperparameters="maximise").fit(frame)
        assert re.search(words, describe_additive(made, frame).sentences[-1])


def test_a_curve_is_said_to_change_or_not():
    frame, rng = table(9), np.random.default_rng(11)
    frame["t"] = np.linspace(0, 10, N)
    frame["wave"], frame["level"] = np.sin(frame["t"]) + 0.3 * rng.normal(size=N), rng.normal(size=N)
    for name, words in (("wave", "s(t) is highest near 7."), ("level", "a level line lies within the band")):
        assert words in describe_additive(AdditiveModel(f"{name} ~ s(t)").fit(frame)).sentences[-1]


def test_a_curve_behind_a_link_says_what_its_change_is_of():
    rng, t = np.random.default_rng(12), np.linspace(0, 10, N)
    frame = pandas.DataFrame(
        {"t": t, "n": rng.poisson(np.exp(2.0 + np.sin(t))), "y": np.sin(t) + 0.1 * rng.normal(size=N)}
    )
    counts = describe_additive(AdditiveModel("n ~ s(t)", "poisson", hyperparameters="maximise").fit(frame))
    plain = describe_additive(AdditiveModel("y ~ s(t)", hyperparameters="maximise").fit(frame))
    assert counts.sentences[-1].endswith(", on the scale of the coefficients.")
    assert "scale of the coefficients" not in plain.sentences[-1]


def test_a_surface_has_no_levels():
    rng = np.random.default_rng(14)
    frame = pandas.DataFrame({"a": rng.uniform(size=N), "b": rng.uniform(size=N)})
    frame["y"] = 3.0 * np.sin(3.0 * frame["a"]) * frame["b"] + 0.2 * rng.normal(size=N)
    model = AdditiveModel("y ~ s(a, b, k=5)", hyperparameters="maximise").fit(frame)
    facts = describe_additive(model)
    assert "levels" not in " ".join(facts.sentences)
    assert "s(a, b" in facts.sentences[-1]
    page = render_additive(model, facts=facts)
    assert "Its coefficients belong to basis functions" in page
    assert "[B0,B0]" not in page


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("gamma", "A coefficient is the change of the log of the expected cost when"),
        ("weibull", "A coefficient is the change of the log of cost, of every quantile alike, when"),
        (potentials.AsymmetricLaplace(0.9), "A coefficient is the change of the quantile of cost when"),
        ("bernoulli", "A coefficient is the change of the log odds of cost = 1 when"),
    ],
)
def test_the_page_names_what_coefficients_change(family, said):
    rng = np.random.default_rng(13)
    x = rng.normal(size=60)
    cost = rng.gamma(3.0, np.exp(0.3 * x) / 3.0)
    frame = pandas.DataFrame({"x": x, "cost": cost > 1.0 if family == "bernoulli" else cost}).astype(float)
    model = AdditiveModel("cost ~ x", family, hyperparameters="maximise").fit(frame)
    assert said in render_additive(model, facts=AdditiveFacts([], ModelChecks()))


@pytest.mark.parametrize(
    ("name", "potential"),
    [
        ("poisson", potentials.Poisson(0.0)),
        ("hurdle-poisson", potentials.Hurdle(potentials.Poisson(0.0), 0.3)),
        ("bernoulli", potentials.Logit(1.0)),
        ("gamma", potentials.Gamma(1.0, 2.0)),
        ("laplace", potentials.Laplace(0.0)),
    ],
)
def test_a_family_is_said_and_checked_alike_by_its_name_and_by_its_potential(name, potential):
    rng = np.random.default_rng(3)
    left_out = SimpleNamespace(pit=rng.random(60), pointwise=np.log(rng.uniform(0.2, 0.9, 60)))
    one, other = (SimpleNamespace(family=family, formula="n ~ x") for family in (name, potential))
    assert additive._held_out(one, left_out) == additive._held_out(other, left_out)
    assert additive.response_words(one) == additive.response_words(other)


def test_ordered_classes_are_checked_within_their_steps():
    # the middle of the step of three classes of one third: even only where it is spread over the step
    pit = np.repeat([1.0, 3.0, 5.0], 40) / 6.0
    left_out = SimpleNamespace(pit=pit, pointwise=np.full(120, np.log(1.0 / 3.0)))
    (check,) = additive._held_out(SimpleNamespace(family="ordinal", formula="n ~ x"), left_out)
    assert check.passed
