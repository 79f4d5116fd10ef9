"""Families beside a formula: ordered classes by brute force, others against the estimators of `latlin.linear`."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, ndtr
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from latlin import potentials
from latlin.additive import AdditiveModel
from latlin.additive.family import FAMILIES, ObservedResponse
from latlin.distributed import frame_blocks
from latlin.linear import (
    BayesianBetaRegression,
    BayesianCountRegression,
    BayesianGammaRegression,
    BayesianOrdinalRegression,
    BayesianQuantileRegression,
    BayesianSurvivalRegression,
)
from latlin.priors import Flat


def drawn(potential, n=120, seed=0, shift=0.7):
    """A table with one standardised column, and responses of a potential to 0.7 + 0.5 x."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    x = (x - x.mean()) / x.std()
    return {"x": x, "y": np.asarray(potential.sample((shift + 0.5 * x)[:, None], rng)).ravel()}


def classes(n=60, seed=1):
    return drawn(potentials.Ordinal(0.0, [0.0, 0.8, 1.6]), n, seed)


def counts(family, **options):
    return BayesianCountRegression(family, **options)


PEERS = {
    "hurdle-poisson": (potentials.Hurdle(potentials.Poisson(0.0), 0.3), counts),
    "hurdle-negative-binomial": (potentials.Hurdle(potentials.NegativeBinomial(0.0, 0.7), 0.3), counts),
    "zero-inflated-poisson": (potentials.ZeroInflated(potentials.Poisson(0.0), 0.3), counts),
    "negative-binomial": (potentials.NegativeBinomial(0.0, 0.7), counts),
    "generalised-poisson": (potentials.GeneralisedPoisson(0.0, 0.4), counts),
    "tweedie": (potentials.Tweedie(1.0, 1.5, 0.8), lambda family, **o: BayesianGammaRegression(family, **o)),
    "gamma": (potentials.Gamma(1.0, 3.0), lambda family, **o: BayesianGammaRegression(family, **o)),
    "beta": (potentials.Beta(0.5, 6.0), lambda family, **o: BayesianBetaRegression(**o)),
    "log-logistic": (
        potentials.LogLogistic(1.0, shape=2.0),
        lambda family, **o: BayesianSurvivalRegression(family, **o),
    ),
}


@pytest.mark.parametrize("family", PEERS)
def test_a_formula_of_one_column_is_the_linear_estimator(family):
    """The same priors and the same engine: the same evidence, coefficients and parameters."""
    potential, make = PEERS[family]
    frame = drawn(potential, 60 if "zero" in family else 120)
    theirs = make(family, engine="gkl", prior_scale=1.0, hyperparameters="maximise", priors=Flat())
    theirs.fit(frame["x"][:, None], frame["y"])
    centre, width = theirs._fits[0].posterior.model.gaussians[0].mean[-1], 5.0 if family != "beta" else 10.0
    ours = AdditiveModel("y ~ x", family, engine="gkl", hyperparameters="maximise")
    learnt = [one.name for one in ours.fit(frame)._problem_.hyperparameters]
    ours.set_params(priors={"x": 1.0, "Intercept": (float(centre), width), **dict.fromkeys(learnt, Flat())}).fit(frame)
    assert ours.log_evidence_ == pytest.approx(theirs.log_evidence_, abs=1e-4)
    effects = ours.effects()
    assert effects["x"]["mean"] == pytest.approx(theirs.coef_[0], abs=2e-3 * effects["x"]["sd"] + 1e-4)
    assert effects["Intercept"]["mean"] == pytest.approx(theirs.intercept_, abs=5e-3 * effects["Intercept"]["sd"])


def test_ordered_classes_at_given_gaps_are_those_of_brute_force():
    frame = classes(40)
    fixed = {"Intercept": (0.3, 1.0), "x": 1.0, "gap(1)": 0.9, "gap(2)": 0.7}
    model = AdditiveModel("y ~ x", "ordinal", priors=fixed, engine="ep").fit(frame)
    b, w = np.meshgrid(np.linspace(-1.5, 3.0, 181), np.linspace(-1.0, 2.0, 181), indexing="ij")
    eta = b[..., None] + w[..., None] * frame["x"]
    cuts = np.array([-np.inf, 0.0, 0.9, 1.6, np.inf])
    lower, upper = cuts[frame["y"].astype(int)], cuts[frame["y"].astype(int) + 1]
    log = np.log(ndtr(upper - eta) - ndtr(lower - eta)).sum(axis=-1) + norm.logpdf(b, 0.3) + norm.logpdf(w)
    total = logsumexp(log) + np.log((b[1, 0] - b[0, 0]) * (w[0, 1] - w[0, 0]))
    share = np.exp(log - logsumexp(log))
    assert model.log_evidence_ == pytest.approx(total, abs=2e-3)
    effects = model.effects()
    assert effects["x"]["mean"] == pytest.approx(np.sum(share * w), abs=2e-3)
    assert effects["Intercept"]["mean"] == pytest.approx(np.sum(share * b), abs=2e-3)


def test_two_ordered_classes_are_a_probit():
    frame = drawn(potentials.Ordinal(0.0, [0.0]), 60)
    frame["g"] = np.resize(np.arange(6), 60)
    found = [AdditiveModel("y ~ x + (1 | g)", family).fit(frame) for family in ("ordinal", "probit")]
    assert found[0].log_evidence_ == pytest.approx(found[1].log_evidence_, abs=1e-6)
    np.testing.assert_allclose(found[0].predict_proba(frame), found[1].predict_proba(frame), atol=1e-6)


def test_ordered_classes_with_flat_priors_are_those_of_the_linear_estimator():
    frame = classes(1500)
    flat = {"Intercept": Flat(), "x": 1.0, "gap(1)": Flat(), "gap(2)": Flat()}
    ours = AdditiveModel("y ~ x", "ordinal", hyperparameters="maximise", priors=flat).fit(frame)
    theirs = BayesianOrdinalRegression(prior_scale=1.0, hyperparameters="maximise", priors=Flat())
    theirs.fit(frame["x"][:, None], frame["y"])
    row, gaps = ours.effects()["x"], np.diff(theirs.cuts_)
    # one maximises the first cut, the other integrates over it: they differ by one over the number of rows
    assert row["mean"] == pytest.approx(theirs.coef_[0], abs=0.1 * row["sd"])
    assert [ours.hyperparameters_[f"gap({k})"]["mean"] for k in (1, 2)] == pytest.approx(gaps, abs=5e-3)
    np.testing.assert_allclose(ours.predict_proba({"x": [0.0, 1.0]}), theirs.predict_proba([[0.0], [1.0]]), atol=3e-3)


def test_labels_of_ordered_classes_keep_their_order(tmp_path):
    frame = classes(80)
    names = np.array(["poor", "fair", "good", "best"])
    kinds = pd.CategoricalDtype(names, ordered=True)
    labelled = pd.DataFrame({"x": frame["x"], "y": pd.Series(names[frame["y"].astype(int)]).astype(kinds)})
    plain = AdditiveModel("y ~ x", "ordinal", hyperparameters="maximise").fit(frame)
    model = AdditiveModel("y ~ x", "ordinal", hyperparameters="maximise").fit(labelled)
    assert model.classes_.tolist() == names.tolist()
    assert model.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-9)
    # rows of one class alone are still counted among all classes
    best = labelled[labelled["y"] == "best"]
    np.testing.assert_allclose(np.exp(model.log_predictive_density(best)), model.predict_proba(best)[:, 3], rtol=1e-6)
    model.save(tmp_path / "model")
    again = AdditiveModel.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(best), model.predict_proba(best), rtol=1e-12)
    np.testing.assert_allclose(
        again.predict_interval(best, random_state=0), model.predict_interval(best, random_state=0)
    )
    with pytest.raises(ValueError, match="'awful', which is none of poor, fair"):
        model.score({"x": [0.0], "y": ["awful"]})


def test_intervals_of_classes_cover_what_is_drawn():
    frame = {**classes(400), "g": np.resize(np.arange(20), 400)}
    model = AdditiveModel("y ~ x + (1 | g)", "ordinal", hyperparameters="maximise").fit(frame)
    low, high = model.predict_interval(frame, 0.8, random_state=0).T
    inside = np.mean((low <= frame["y"]) & (frame["y"] <= high))
    assert 0.8 <= inside <= 0.98
    p = model.predict_proba(frame)
    np.testing.assert_allclose(p @ np.arange(4), model.predict(frame), atol=1e-9)
    loo = model.loo()
    assert abs(loo.pit.mean() - 0.5) < 0.05


def test_a_potential_stands_for_its_family_with_an_argument_chosen(tmp_path):
    rng = np.random.default_rng(4)
    x = rng.standard_normal(300)
    frame = {"x": x, "y": x + rng.gamma(2.0, 1.0, 300)}
    model = AdditiveModel("y ~ x", potentials.AsymmetricLaplace(0.9), hyperparameters="maximise").fit(frame)
    below = np.mean(frame["y"] < model.predict(frame))
    assert below == pytest.approx(0.9, abs=0.02)
    theirs = BayesianQuantileRegression(0.9).fit(x[:, None], frame["y"])
    assert model.effects()["x"]["mean"] == pytest.approx(theirs.coef_[0], abs=0.05)
    model.save(tmp_path / "model")
    again = AdditiveModel.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_latent(frame), model.predict_latent(frame), rtol=1e-12)
    logit = potentials.Ordinal(0, [0.0], "logit")
    ordered = AdditiveModel("y ~ x", logit, hyperparameters="fixed").fit(classes())
    # a logistic noise is wider than a normal one, and with it the coefficients
    normal = AdditiveModel("y ~ x", "ordinal", hyperparameters="fixed").fit(classes())
    assert 1.2 < ordered.effects()["x"]["mean"] / normal.effects()["x"]["mean"] < 2.2
    with pytest.raises(ValueError, match="a potential of a declared family"):
        AdditiveModel("y ~ x", potentials.Step(1.0, 0.1)).fit(frame)


def test_numbers_that_are_recorded_from_zero_on():
    """Against integrals on a grid at given hyperparameters, and against what a Gaussian makes of the same rows."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(60)
    y = 0.3 + 0.8 * x + 0.7 * rng.standard_normal(60)
    frame = {"x": x[y > 0.0], "y": y[y > 0.0]}
    cut = potentials.Truncated(potentials.Gaussian(1.0, 0.7), low=0.0)
    given = {"Intercept": (0.0, 1.0), "x": 1.0, "sigma": 0.7}
    model = AdditiveModel("y ~ x", cut, priors=given, engine="ep").fit(frame)
    b, w = np.meshgrid(np.linspace(-2.5, 2.0, 181), np.linspace(-1.0, 2.5, 181), indexing="ij")
    eta = b[..., None] + w[..., None] * frame["x"]
    log = (norm.logpdf(frame["y"], eta, 0.7) - norm.logcdf(eta / 0.7)).sum(axis=-1) + norm.logpdf(b) + norm.logpdf(w)
    total = logsumexp(log) + np.log((b[1, 0] - b[0, 0]) * (w[0, 1] - w[0, 0]))
    share = np.exp(log - logsumexp(log))
    assert model.log_evidence_ == pytest.approx(total, abs=5e-3)
    assert model.effects()["x"]["mean"] == pytest.approx(np.sum(share * w), abs=5e-3)
    learnt = AdditiveModel("y ~ x", cut, hyperparameters="maximise").fit(frame)
    assert 0.5 < learnt.hyperparameters_["sigma"]["mean"] < 0.9
    assert np.all(learnt.predict_interval(frame) >= 0.0)
    for unfitted in (AdditiveModel.predict_interval, AdditiveModel.quantile_residuals):
        with pytest.raises(NotFittedError):
            unfitted(AdditiveModel("y ~ x", cut), frame)
    assert np.abs(learnt.quantile_residuals(frame)).max() < 4.0
    plain = AdditiveModel("y ~ x", hyperparameters="maximise").fit(frame)
    assert plain.effects()["x"]["mean"] < learnt.effects()["x"]["mean"] - 0.1


def test_times_between_two_visits():
    """Interval-censored exponential times by the likelihood of the intervals."""
    rng = np.random.default_rng(2)
    time = rng.exponential(2.0, 300)
    low = np.floor(time)
    frame = {"low": np.maximum(low, 1e-6), "high": low + 1.0, "kind": np.full(300, 3.0)}
    model = AdditiveModel("low | event(kind) + upper(high) ~ 1", "exponential", engine="gkl").fit(frame)
    # the likelihood of whole numbers of survived steps: geometric with survival exp(−1/mean)
    survival = low.sum() / (low.sum() + 300)
    assert model.effects()["Intercept"]["mean"] == pytest.approx(np.log(-1.0 / np.log(survival)), abs=0.02)


def test_gaps_in_blocks_are_those_of_rows_in_memory():
    frame = {"x": np.round(classes(90)["x"], 2), "y": np.array(list("abcd"))[classes(90)["y"].astype(int)]}
    options = {"engine": "gkl", "hyperparameters": "maximise"}
    held = AdditiveModel("y ~ x", "ordinal", **options).fit(frame)
    blocks = AdditiveModel("y ~ x", "ordinal", **options).fit(frame_blocks(frame, rows=20))
    assert blocks.log_evidence_ == pytest.approx(held.log_evidence_, abs=1e-5)
    gaps = [[model.hyperparameters_[f"gap({k})"]["mean"] for k in (1, 2)] for model in (blocks, held)]
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-4)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.link in ("share", "ordered")])
def test_the_average_row_lies_where_the_family_expects_its_share(name):
    family, y = FAMILIES[name], np.array([0.0, 1.0, 0.0, 0.0, 1.0])
    template = family.template.replace(cuts=[0.0]) if family.ordered else family.template
    if "trials" in template.parameters:
        template = template.replace(trials=1.0)
    centre = family.centre(ObservedResponse(y), np.zeros(5))
    assert float(template.predictive(centre, 0.0).mean) == pytest.approx(0.4, abs=1e-12)


def test_the_summary_names_what_coefficients_change():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40)
    frame = {
        "x": x,
        "visits": rng.poisson(np.exp(x)),
        "ill": np.where(x + rng.logistic(size=40) > 0, "yes", "no"),
        "y": x,
        "seen": (x > 0).astype(int) ^ (np.arange(40) % 4 == 0),
        "n": np.full(40, 100),
    }
    said = {
        family: repr(AdditiveModel(f"{y} ~ x", family, hyperparameters="fixed").fit(frame).summary()).splitlines()[0]
        for family, y in (
            ("poisson", "visits"),
            ("bernoulli", "ill"),
            ("probit", "ill"),
            ("gaussian", "y"),
            ("logistic", "seen"),
            ("binomial", "visits | trials(n)"),
        )
    }
    assert "the log of the expected value" in said["poisson"]
    assert "the log odds of ill = yes (exp(coefficient) multiplies the odds)" in said["bernoulli"]
    assert "the probit of the probability of ill = yes" in said["probit"]
    assert "the log odds of seen = 1 (" in said["logistic"]
    assert "the log odds (" in said["binomial"]
    assert "coefficients" not in said["gaussian"]


def test_the_summary_names_cut_points_and_levels_and_the_posterior_its_coordinates():
    frame = {**classes(), "kind": np.resize(["late", "early", "noon"], 60), "g": np.resize(["a", "b"], 60)}
    model = AdditiveModel("y ~ x + kind + (1 | g)", "ordinal", hyperparameters="maximise").fit(frame)
    said = repr(model.summary())
    assert "Levels are compared: kind with early." in said
    first, gap = -model.effects()["Intercept"]["mean"], model._values[0]["gap(1)"]
    a, b, c = model.classes_[:3]
    assert f"probit link, cut points {a} | {b} at {first:.4g}, {b} | {c} at {first + gap:.4g}" in said
    expected = ("Intercept", "x", "kind[T.late]", "kind[T.noon]", "g[a]", "g[b]")
    assert model.posterior_.names == expected
    assert "coordinate" not in str(model.posterior_.diagnose(200, random_state=0))
