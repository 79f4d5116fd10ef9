"""AdditiveModel against exact answers: evidence, hyperparameters, effects, predictions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone

from latlin import ConvergenceWarning
from latlin.additive import AdditiveModel, Fixed, Group, RandomWalk
from latlin.additive.family import FAMILIES, ObservedResponse
from latlin.additive.learning import learn
from latlin.inference.diagnosis.log_joint import plan_draws
from latlin.priors import Flat, HalfNormal

RING = {k: [(k - 1) % 6, (k + 1) % 6] for k in range(6)}


def table(n=36, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.normal(size=n),
        "count": rng.poisson(2.0, n),
        "x": rng.normal(2.0, 1.5, n),
        "t": np.resize(np.arange(9), n),
        "g": np.resize(list("abcd"), n),
        "area": np.resize(np.arange(6), n),
        "sex": np.resize(["f", "m", "m"], n),
    }


def dense_evidence(model):
    """log N(y | Hμ + offset, HSHᵀ + σ²I) at the model's fixed hyperparameters, S within the constraints."""
    problem, values = model._problem_, model._components[0].values
    Q = linalg.block_diag(*[part.prior(values).precision.toarray() for part in problem.parts])
    A = problem.constraint
    basis = np.eye(problem.dim) if A is None else linalg.null_space(A.toarray())
    H = problem.design.toarray()
    K = H @ basis @ np.linalg.inv(basis.T @ Q @ basis) @ basis.T @ H.T
    noise = values["sigma"] ** 2 * np.eye(len(H))
    return multivariate_normal(H @ problem.mean + problem.offset, K + noise).logpdf(problem.observed.y)


@pytest.mark.parametrize(
    "right",
    [
        "x + sex",
        "x + (1 | g)",
        "x + (1 + x | g)",
        "(1 + x || g) + offset(x)",
        "rw1(t) + (1 | g)",
        "rw2(t)",
        "ar1(t) + seasonal(t, 3)",
        "s(x, k=7)",
        "gp(t)",
        "besag(area) + rw1(t)",
        "bym2(area)",
    ],
)
def test_the_evidence_at_given_hyperparameters_is_that_of_the_marginal_normal(right):
    model = AdditiveModel(f"y ~ {right}", hyperparameters="fixed").fit(table(), graph=RING)
    assert model.log_evidence_ == pytest.approx(dense_evidence(model), abs=1e-6)


def test_gaussian_responses_are_exact_whatever_the_engine():
    found = {
        engine: AdditiveModel("y ~ x + rw1(t) + (1 | g)", engine=engine, hyperparameters="fixed").fit(table())
        for engine in ("auto", "exact", "gkl", "ep", "laplace")
    }
    assert found["auto"].evidence_kind_ == "exact"
    for model in found.values():
        assert model.log_evidence_ == pytest.approx(found["exact"].log_evidence_, abs=1e-8)
        np.testing.assert_allclose(model.posterior_.variance, found["exact"].posterior_.variance, rtol=1e-7)


@pytest.mark.parametrize(
    ("formula", "family", "engine"),
    [
        ("y ~ x + (1 + x | g) + rw1(t)", "gaussian", "gkl"),
        ("count ~ x + bym2(area) + ar1(t)", "poisson", "gkl"),
        ("count ~ x + (1 | g) + gp(t)", "poisson", "ep"),
        ("count ~ x + (1 | g)", "negative-binomial", "gkl"),
        ("count ~ (1 | g)", "negative-binomial", "ep"),
        ("count ~ (1 | g) + rw2(t)", "poisson", "laplace"),
    ],
)
def test_slopes_of_the_evidence_are_those_of_differences(formula, family, engine):
    model = AdditiveModel(formula, family, hyperparameters="fixed", engine=engine).fit(table(), graph=RING)
    problem, values = model._problem_, dict(model._components[0].values)
    slopes = problem.evaluate(values, engine, None, True).gradient
    assert set(slopes) == set(values)
    for name, value in values.items():
        step = 1e-3 * max(abs(value), 0.1)
        up, down = (
            problem.evaluate({**values, name: value + sign * step}, engine, None, False).log_evidence
            for sign in (1, -1)
        )
        assert slopes[name] == pytest.approx((up - down) / (2 * step), rel=2e-4, abs=2e-4)


#: numbers of families that make data about which they have something to say
TRUE = {"sigma": 0.3, "df": 5.0, "zeros": 0.15, "gap(1)": 0.8, "gap(2)": 1.0, "precision": 8.0, "dispersion": 0.6}


#: draws of these have standard deviations that are slow to settle
HEAVY = ("inverse-gaussian", "log-logistic")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_fits_and_predicts_what_it_draws(family):
    rng = np.random.default_rng(3)
    g, x = np.repeat(np.arange(8), 10), rng.normal(size=80)
    eta = 0.5 * x + rng.normal(0, 0.4, 8)[g] + (1.0 if FAMILIES[family].link == "log" else 0.0)
    counted = family in ("binomial", "beta-binomial")
    row = ObservedResponse(np.array([FAMILIES[family].template.observation[1]]), np.array([6.0]) if counted else None)
    kinds = FAMILIES[family].learnt(replace(row, classes=np.arange(4)))
    usual = {one.name: FAMILIES[family].template.free[one.parameter].start for one in kinds}
    sites = FAMILIES[family].potential(row, {name: TRUE.get(name, value) for name, value in usual.items()})
    frame = {"x": x, "g": g, "n": np.full(80, 6.0), "y": sites.sample(eta[:, None], rng).ravel()}
    response = "y | trials(n)" if counted else "y"
    options = {"hyperparameters": "maximise", "priors": {"sd(g)": 0.4}}
    model = AdditiveModel(f"{response} ~ x + (1 | g)", family, **options).fit(frame)
    row = model.effects()["x"]
    # links and noise differ from those that made the data: the slope is about right
    assert abs(row["mean"] - 0.5) < 0.15 + 2 * row["sd"]
    assert row["mean"] > row["sd"]
    new = {"x": [0.0, 1.0], "g": [2, 99], "n": [6.0, 6.0], "y": [0.0, 0.0]}
    draws = model.sample_predictive(new, 20000, random_state=0)
    # noise of Cauchy has no mean, and averages of draws of Student's t are slow to settle
    if family not in ("student-t", "cauchy"):
        expected, std = (6.0 if counted else 1.0) * np.array(model.predict(new, return_std=True))
        np.testing.assert_allclose(
            draws.mean(axis=0), expected, atol=5 * draws.std(axis=0).max() / np.sqrt(20000) + 1e-3
        )
        if FAMILIES[family].of_quantiles:
            # what is predicted is a quantile, and how well it is known
            np.testing.assert_allclose(std, model.predict_latent(new, return_std=True)[1], rtol=1e-12)
        elif family not in HEAVY:
            np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.06)
    slopes = model._problem_.slopes(model._fits[0], model._components[0].values)
    assert slopes is not None
    for name, value in model._components[0].values.items():
        step = 1e-3 * value
        values = dict(model._components[0].values)
        engine = model._fits[0].engine
        ends = [model._problem_.evaluate({**values, name: value + s * step}, engine, None, False) for s in (1, -1)]
        difference = (ends[0].log_evidence - ends[1].log_evidence) / (2 * step)
        assert slopes[name] == pytest.approx(difference, rel=1e-3, abs=2e-3 / value)


def test_times_that_are_only_waited_for_count_as_that():
    rng = np.random.default_rng(0)
    time, limit = rng.exponential(2.0, 400), rng.uniform(0.5, 4.0, 400)
    frame = {"time": np.minimum(time, limit), "seen": (time <= limit).astype(float)}
    model = AdditiveModel("time | event(seen) ~ 1", "exponential").fit(frame)
    # the maximum likelihood rate is events over time at risk
    expected = np.log(frame["time"].sum() / frame["seen"].sum())
    assert model.effects()["Intercept"]["mean"] == pytest.approx(expected, abs=0.02)
    with pytest.raises(ValueError, match=r"has no event\(…\); these have: weibull"):
        AdditiveModel("time | event(seen) ~ 1").fit(frame)


def test_a_scale_that_runs_to_zero_is_said_aloud():
    rng = np.random.default_rng(1)
    g, y = np.repeat(np.arange(10), 5), rng.normal(size=50)
    y -= np.array([y[g == k].mean() for k in range(10)])[g]
    model = AdditiveModel("y ~ (1 | g)", hyperparameters="maximise", priors={"sd(g)": Flat()})
    with pytest.warns(ConvergenceWarning, match="lower end of its search"):
        model.fit({"y": y, "g": g})
    assert model.hyperparameters_.at_bound == ("sd(g)",)
    assert model.posterior_.caution[0] == "wrong"


def test_a_published_fit_of_rails():
    """Travel times in six rails (Devore 2000): Pinheiro and Bates (2000), section 1.1, by restricted likelihood."""
    y = np.array([55, 53, 54, 26, 37, 32, 78, 91, 85, 92, 100, 96, 49, 51, 50, 80, 85, 83], float)
    priors = {"Intercept": Flat(), "sd(rail)": Flat(), "sigma": Flat()}
    model = AdditiveModel("y ~ (1 | rail)", hyperparameters="maximise", priors=priors)
    model.fit({"y": y, "rail": np.repeat(np.arange(6), 3)})
    assert model.hyperparameters_["sd(rail)"]["mean"] == pytest.approx(24.80547, rel=1e-4)
    assert model.hyperparameters_["sigma"]["mean"] == pytest.approx(4.020779, rel=1e-4)
    assert model.effects()["Intercept"]["mean"] == pytest.approx(66.5, rel=1e-4)
    assert model.effects()["Intercept"]["sd"] == pytest.approx(10.17104, rel=1e-4)


def brute_force(n, k, grid=81):
    """log evidence, and mean and sd of intercept ~ N(0, 2²) and sd ~ HalfNormal(1), for binomial groups."""
    x, w = np.polynomial.hermite_e.hermegauss(40)
    mus, sds = np.linspace(-4, 4, grid), np.linspace(1e-3, 5, 2 * grid)
    eta = mus[:, None, None] + sds[:, None] * x
    log_p, log_q = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
    total = np.zeros((len(mus), len(sds)))
    for a, b in zip(n, k, strict=True):
        binomial = gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1)
        total += logsumexp(b * log_p + (a - b) * log_q, b=w / w.sum(), axis=2) + binomial
    total += -0.125 * mus[:, None] ** 2 - np.log(2 * np.sqrt(2 * np.pi)) + HalfNormal(1.0).log_density(sds)
    log_z = logsumexp(total) + np.log((mus[1] - mus[0]) * (sds[1] - sds[0]))
    p = np.exp(total - logsumexp(total))
    moments = []
    for axis, values in ((1, mus), (0, sds)):
        mean = p.sum(axis) @ values
        moments += [mean, np.sqrt(p.sum(axis) @ (values - mean) ** 2)]
    return log_z, *moments


def test_a_binary_model_with_its_scale_integrated_is_that_of_brute_force():
    rng = np.random.default_rng(0)
    n = np.full(30, 5)
    k = rng.binomial(n, expit(0.3 + rng.normal(0, 1.3, 30)))
    priors = {"Intercept": 2.0, "sd(g)": HalfNormal(1.0)}
    model = AdditiveModel("k | trials(n) ~ (1 | g)", "binomial", priors=priors)
    model.fit({"k": k, "n": n, "g": np.arange(30)})
    log_z, mean, sd, scale, scale_sd = brute_force(n, k)
    assert model.log_evidence_ == pytest.approx(log_z, abs=0.01)
    intercept, found = model.effects()["Intercept"], model.hyperparameters_["sd(g)"]
    assert intercept["mean"] == pytest.approx(mean, abs=0.02 * sd)
    assert intercept["sd"] == pytest.approx(sd, rel=0.01)
    assert found["mean"] == pytest.approx(scale, abs=0.02 * scale_sd)
    assert found["sd"] == pytest.approx(scale_sd, rel=0.02)
    bound = clone(model).set_params(engine="gkl").fit({"k": k, "n": n, "g": np.arange(30)})
    assert bound.evidence_kind_ == "lower bound"
    assert bound.log_evidence_ < log_z


def test_maximising_without_priors_is_maximum_likelihood_of_a_balanced_layout():
    rng = np.random.default_rng(4)
    groups, size = 12, 5
    y = rng.normal(0, 1.0, (groups, 1)) + rng.normal(0, 0.7, (groups, size))
    frame = {"y": y.ravel(), "g": np.repeat(np.arange(groups), size)}
    priors = {"Intercept": 1e4, "sd(g)": Flat(), "sigma": Flat()}
    model = AdditiveModel("y ~ (1 | g)", hyperparameters="maximise", priors=priors).fit(frame)
    # restricted maximum likelihood of a one-way layout: mean squares within and between
    within = np.sum((y - y.mean(1, keepdims=True)) ** 2) / (groups * (size - 1))
    between = size * np.sum((y.mean(1) - y.mean()) ** 2) / (groups - 1)
    assert model.hyperparameters_["sigma"]["mean"] == pytest.approx(np.sqrt(within), rel=1e-4)
    assert model.hyperparameters_["sd(g)"]["mean"] == pytest.approx(np.sqrt((between - within) / size), rel=1e-4)
    share = (between - within) / size / ((between - within) / size + within)
    assert model.intraclass_correlation("g") == pytest.approx(share, rel=1e-3)


def test_a_term_list_is_the_formula():
    frame = table()
    formula = AdditiveModel("count ~ x + (1 | g) + rw1(t)", "poisson", hyperparameters="fixed").fit(frame)
    listed = AdditiveModel(
        response="count",
        terms=[Fixed("x"), Group("g"), RandomWalk("t")],
        family="poisson",
        hyperparameters="fixed",
    ).fit(frame)
    assert listed.log_evidence_ == pytest.approx(formula.log_evidence_, abs=1e-8)


def test_effects_are_linear_functions_of_the_posterior():
    frame = table(60, seed=2)
    model = AdditiveModel("y ~ x + sex + (1 | g)", hyperparameters="fixed").fit(frame)
    means = model.effects("sex")
    assert means.names == ["sex[f]", "sex[m]"]
    coefficients = model.effects()
    difference = model.contrasts("sex").rows[0]
    assert difference["name"] == "sex[m] - sex[f]"
    assert difference["mean"] == pytest.approx(coefficients["sex[T.m]"]["mean"])
    assert difference["sd"] == pytest.approx(coefficients["sex[T.m]"]["sd"], rel=1e-6)
    average = coefficients["Intercept"]["mean"] + coefficients["x"]["mean"] * frame["x"].mean()
    assert means["sex[f]"]["mean"] == pytest.approx(average)
    spots = model.effects("x")
    assert len(spots) == 5
    slope = (spots.rows[-1]["mean"] - spots.rows[0]["mean"]) / np.ptp(np.quantile(frame["x"], [0.05, 0.95]))
    assert slope == pytest.approx(coefficients["x"]["mean"])
    assert model.effects("g").names == ["g[a]", "g[b]", "g[c]", "g[d]"]
    assert len(model.contrasts("g")) == 6
    assert "log evidence" in repr(model.summary())


def test_predictions_know_unseen_groups_and_average_over_seen_ones():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(20), 10)
    y = rng.normal(0, 2.0, 20)[group] + rng.normal(0, 0.5, 200)
    model = AdditiveModel("y ~ (1 | g)").fit({"y": y, "g": group})
    seen, seen_sd = model.predict_latent({"g": [3]}, return_std=True)
    unseen, unseen_sd = model.predict_latent({"g": [99]}, return_std=True)
    assert seen[0] == pytest.approx(y[group == 3].mean(), abs=0.2)
    assert unseen[0] == pytest.approx(model.effects()["Intercept"]["mean"])
    assert seen_sd[0] < 0.3 < 1.0 < unseen_sd[0]
    marginal, marginal_sd = model.predict_latent({"g": [3]}, marginal="g", return_std=True)
    assert (marginal[0], marginal_sd[0]) == pytest.approx((unseen[0], unseen_sd[0]))
    draws = model.sample_predictive({"g": [3, 99, 99]}, 20000, random_state=0)
    assert draws.shape == (20000, 3)
    assert draws[:, 1].std() == pytest.approx(np.hypot(unseen_sd[0], 0.5), rel=0.05)
    # rows of one unseen group share its effect
    assert np.corrcoef(draws[:, 1], draws[:, 2])[0, 1] > 0.8
    low, high = model.predict_interval({"g": [3, 99]}, 0.8).T
    np.testing.assert_allclose([low, high], np.quantile(draws[:, :2], [0.1, 0.9], axis=0), atol=0.1)


def test_labels_of_another_kind_are_not_taken_for_new_groups():
    model = AdditiveModel("y ~ (1 | area)", hyperparameters="fixed").fit(table())
    assert model.predict({"area": [1.0, 3.0]}) == pytest.approx(model.predict({"area": [1, 3]}))
    with pytest.raises(ValueError, match="holds the label '3', and 3 in training"):
        model.predict({"area": ["new", "3"]})
    assert model.predict({"area": ["new"]}) == pytest.approx(model.predict({"area": [77]}))


def test_a_model_without_coefficients_has_a_summary():
    model = AdditiveModel("y ~ 0 + (1 | g)", hyperparameters="fixed").fit(table())
    assert len(model.effects()) == 0
    assert "log evidence" in repr(model.summary())
    assert model.effects().to_frame().shape == (0, 5)


def test_counts_are_predicted_by_their_mean_and_drawn_as_counts():
    frame = table(80, seed=5)
    frame["count"] = np.random.default_rng(0).negative_binomial(2, 0.4, 80)
    options = {"hyperparameters": "maximise", "priors": {"sd(g)": 0.3}}
    model = AdditiveModel("count ~ x + (1 | g)", "negative-binomial", **options).fit(frame)
    new = {"x": [0.0, 2.0], "g": ["a", "new"]}
    draws = model.sample_predictive(new, 40000, random_state=1)
    assert np.all(draws == np.round(draws))
    assert draws.min() >= 0
    np.testing.assert_allclose(draws.mean(axis=0), model.predict(new), rtol=0.03)
    low, high = model.predict_interval(new).T
    assert np.all(low <= high)
    assert np.all(low == np.round(low))
    observed = {**new, "count": [1, 3]}
    log_p = np.log([np.mean(draws[:, j] == observed["count"][j]) for j in (0, 1)])
    np.testing.assert_allclose(model.log_predictive_density(observed), log_p, atol=0.05)
    assert model.score(observed) == pytest.approx(np.mean(model.log_predictive_density(observed)))


def test_labels_of_a_binary_response_become_probabilities():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    answer = np.where(rng.random(200) < expit(2 * x), "yes", "no")
    model = AdditiveModel("answer ~ x", "bernoulli").fit({"answer": answer, "x": x})
    p = model.predict_proba({"x": [-3.0, 3.0]})
    assert p.shape == (2, 2)
    assert p[1, 1] > 0.9 > 0.1 > p[0, 1]


def test_variance_components_add_up():
    model = AdditiveModel("y ~ (1 | g) + rw1(t)", hyperparameters="fixed", priors={"sd": HalfNormal(1.0)}).fit(table())
    shares = model.variance_components()
    assert sum(shares[f"share({name})"]["mean"] for name in ("g", "rw1(t)", "residual")) == pytest.approx(1.0)


def test_fields_are_no_part_of_a_correlation_within_groups():
    """Two rows of one group are as alike at given places of a field as they are at given columns."""
    frame, priors = table(), {"sd(g)": 0.6, "sigma": 0.8}
    for field, more in (("x", {}), ("rw1(t)", {"sd(rw1(t))": 3.0})):
        model = AdditiveModel(f"y ~ {field} + (1 | g)", priors=priors | more).fit(frame)
        assert model.intraclass_correlation("g") == pytest.approx(0.36 / (0.36 + 0.64), rel=1e-9)


def test_components_have_correlations_where_hyperparameters_are_partial_ones():
    frame = table() | {"z": np.cos(np.arange(36.0))}
    sds = {"sd(g)": 0.5, "sd(g:x)": 0.7, "sd(g:z)": 0.9, "sigma": 1.0}
    partial = {"cor(g: Intercept, x)": 0.6, "cor(g: Intercept, z)": -0.5, "cor(g: x, z given Intercept)": 0.3}
    model = AdditiveModel("y ~ x + z + (1 + x + z | g)", priors=sds | partial).fit(frame)
    found = model.variance_components()
    assert found["cor(g, g:x)"]["mean"] == pytest.approx(0.6)
    assert found["cor(g, g:z)"]["mean"] == pytest.approx(-0.5)
    # r = r₁₂r₁₃ + r₂₃·₁ √((1 − r₁₂²)(1 − r₁₃²))
    assert found["cor(g:x, g:z)"]["mean"] == pytest.approx(0.6 * -0.5 + 0.3 * np.sqrt((1 - 0.36) * (1 - 0.25)))


@pytest.mark.parametrize(
    ("family", "numbers", "variance"),
    [
        ("negative-binomial", {"dispersion": 0.5}, lambda mean: np.log(1.0 + 1.0 / mean + 0.5)),
        ("gamma", {"shape": 4.0}, lambda mean: np.log(1.25)),
        ("log-normal", {"sigma": 0.3}, lambda mean: 0.09),
        ("student-t", {"sigma": 2.0, "df": 6.0}, lambda mean: 6.0),
        ("cauchy", {"sigma": 2.0}, lambda mean: (2.0 / 0.6744897501960817) ** 2),
    ],
)
def test_variance_of_noise_has_all_that_the_family_adds(family, numbers, variance):
    y, g = np.array([1.0, 2.0, 3.0, 2.0, 5.0, 4.0]), list("aabbcc")
    model = AdditiveModel("y ~ (1 | g)", family, engine="laplace", priors={"sd(g)": 0.6, **numbers})
    found = model.fit({"y": y, "g": g}).variance_components()
    noise = variance(y.mean())
    assert found["var(residual)"]["mean"] == pytest.approx(noise, rel=1e-6)
    assert model.intraclass_correlation() == pytest.approx(0.36 / (0.36 + noise), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"formula": "y ~ x", "family": "unknown"}, r"family must be one of .*, got 'unknown'$"),
        ({"formula": "y ~ x", "family": "Zero_inflated_Poisson"}, "write 'zero-inflated-poisson'"),
        ({"formula": "count ~ x", "family": "binomial"}, r"where rows have several trials write successes \| trials"),
        ({"formula": "y ~ x", "family": "Normal"}, "write 'normal'"),
        ({"formula": "y ~ nothing"}, "no column 'nothing'"),
        ({"formula": "y ~ x", "priors": {"z": 1.0}}, "which is none of"),
        ({"formula": "y ~ x", "priors": {"x": -1.0}}, "standard deviation"),
        ({"formula": "y ~ (1 | g)", "priors": {"sd(g)": "wide"}}, "latlin.priors or a number"),
        ({"formula": "y ~ (1 | g) + (1 | g)"}, "there twice"),
        ({"response": "y", "terms": [Group("g"), Group("g", "x")]}, "there twice"),
        ({"formula": "y ~ x", "hyperparameters": "guess"}, "hyperparameters must be one of"),
        ({"formula": "sex ~ x"}, "takes two of them"),
        ({"formula": "y | trials(count) ~ x"}, "has no trials"),
        ({"formula": "count | trials(count) ~ x", "family": "negative-binomial"}, "has no trials"),
        ({}, "needs a formula"),
        ({"formula": "y ~ x", "terms": [Fixed("x")]}, "not both"),
        ({"formula": "y ~ x", "family": "poisson"}, "y must"),
    ],
)
def test_bad_models_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        AdditiveModel(**options).fit(table())


def test_fixing_a_hyperparameter_leaves_the_others_free():
    frame = table()
    model = AdditiveModel("y ~ (1 | g)", hyperparameters="maximise", priors={"sd(g)": 0.7}).fit(frame)
    assert model.hyperparameters_.names == ("sigma",)
    assert model._components[0].values["sd(g)"] == 0.7
    with pytest.raises(ValueError, match="fixes a number"):
        AdditiveModel("y ~ (1 | g)", priors={"sd(g)": -0.7}).fit(frame)


def test_a_flat_coefficient_leaves_no_absolute_evidence():
    model = AdditiveModel("y ~ x", priors={"x": Flat()}, hyperparameters="fixed").fit(table())
    assert model.evidence_kind_ == "none"
    assert "flat" in model.message_


def test_auto_integrates_while_that_is_cheap(monkeypatch):
    frame = table()
    frame["count"] = np.random.default_rng(0).poisson(np.exp(np.resize([0.0, 1.0, 2.0, 3.0], 36)))
    assert AdditiveModel("count ~ (1 | g)", "poisson").fit(frame).hyperparameters_.manner == "integrated"
    monkeypatch.setattr("latlin.additive.learning.CHEAP", 100.0)
    assert AdditiveModel("count ~ (1 | g)", "poisson").fit(frame).hyperparameters_.manner == "maximised"


def test_learning_is_one_function_of_a_problem():
    model = AdditiveModel("count ~ (1 | g)", "poisson", hyperparameters="fixed").fit(table())
    learnt, posterior = learn(model._problem_, "gkl", "integrate", {}, 0, False)
    assert learnt.table.manner == "integrated"
    assert sum(component.share for component in learnt.components) == pytest.approx(1.0)
    assert posterior.evidence_kind == "lower bound"


def test_an_average_under_constraints_is_diagnosed():
    """Its covariance is singular, up to rounding, across the constraints."""
    rng = np.random.default_rng(0)
    week = np.arange(40) % 10
    table = {"y": np.sin(week / 3.0) + 0.3 * rng.standard_normal(40), "week": week, "region": np.arange(40) % 6}
    graph = [(k, k + 1) for k in range(5)]
    model = AdditiveModel("y ~ 1 + rw1(week) + besag(region)", hyperparameters="integrate").fit(table, graph=graph)
    posterior = model.posterior_
    spread = plan_draws(posterior, 200, rng, 200).proposals[1].spread
    assert spread is posterior.density.components[int(np.argmax(posterior.density.weights))].structure
    assert posterior.diagnose(random_state=0).k_hat < 0.7


def test_frames_of_polars_and_arrow_give_the_numbers_of_pandas():
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    rng = np.random.default_rng(3)
    columns = {
        "y": (rng.standard_normal(40) + 3.0 * (np.arange(40) % 5)).tolist(),
        "x": rng.standard_normal(40).tolist(),
        "g": [f"g{k}" for k in np.arange(40) % 5],
    }
    fits = [
        AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise").fit(make(columns))
        for make in (pandas.DataFrame, polars.DataFrame, arrow.table)
    ]
    expected = fits[0].predict(pandas.DataFrame(columns))
    for fit, make in zip(fits[1:], (polars.DataFrame, arrow.table), strict=True):
        np.testing.assert_allclose(fit.predict(make(columns)), expected, rtol=1e-10)


def test_missing_cells_are_dropped_or_filled_by_policy():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    x, g = rng.standard_normal(40), np.resize(list("abcde"), 40)
    frame = pandas.DataFrame({"y": 2.0 * x + 0.3 * rng.standard_normal(40), "x": x, "g": g, "spare": np.nan})
    frame.loc[:2, "x"], frame.loc[39, "y"] = np.nan, np.nan
    model = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise")
    with pytest.raises(ValueError, match="missing cells: 3 in 'x'"):
        model.fit(frame.iloc[:39])
    whole = model.fit(frame.iloc[3:39]).effects()["x"]
    # columns that the formula does not name may have gaps
    assert model.fit(frame, missing="drop").effects()["x"] == whole
    assert model.fit({name: frame[name].to_numpy() for name in frame}, missing="drop").effects()["x"] == whole
    for policy in ("mean", "modelled"):
        assert len(model.fit(frame, missing=policy).loo().pointwise) == 39
    with pytest.raises(ValueError, match="missing must be one of"):
        model.fit(frame, missing="guess")


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_rows_whose_labels_repeat_are_each_themselves(missing):
    """An index may hold a label twice: rows are not paired by it."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table()).astype({"x": float})
    frame.loc[[3, 7], "x"] = np.nan
    plain = AdditiveModel("y ~ x + (1 | g)").fit(frame, missing=missing)
    twice = AdditiveModel("y ~ x + (1 | g)").fit(frame.set_axis(np.arange(36) % 5), missing=missing)
    assert twice._problem_.n_rows == plain._problem_.n_rows == (34 if missing == "drop" else 36)
    assert twice.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-9)


def test_intervals_of_components_are_those_of_the_standard_deviations_squared():
    model = AdditiveModel("y ~ (1 | g)", hyperparameters="integrate").fit(table())
    found, learnt = model.variance_components(0.9), model.hyperparameters_
    for name, sd in (("g", "sd(g)"), ("residual", "sigma")):
        row = found[f"var({name})"]
        assert [row["low"], row["high"]] == pytest.approx([learnt[sd]["5%"] ** 2, learnt[sd]["95%"] ** 2])
    share = found["share(g)"]
    assert 0.0 < share["low"] < share["mean"] < share["high"] < 1.0


def test_probabilities_of_a_sign_are_probabilities():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    rows = AdditiveModel("y ~ x").fit({"x": x, "y": -5.0 * x + 0.1 * rng.normal(size=200)}).effects().rows
    assert all(0.0 <= row["p_positive"] <= 1.0 for row in rows)


def test_a_smooth_per_label_has_a_curve_per_label():
    rng = np.random.default_rng(5)
    t, sex = np.resize(np.linspace(0, 1, 40), 160), np.repeat(["f", "m"], 80)
    frame = {"t": t, "sex": sex, "z": rng.normal(size=160)}
    frame["y"] = np.where(sex == "f", np.sin(6 * t), -np.sin(6 * t)) + 0.1 * rng.standard_normal(160)
    model = AdditiveModel("y ~ s(t, by=sex)", hyperparameters="maximise").fit(frame)
    for level, sign in (("f", 1.0), ("m", -1.0)):
        x, curve = model.curve("s(t):sex", 50, level=level)
        found = np.array([row["mean"] for row in curve.rows])
        # curves are of mean zero, and so is the sine about its own
        assert np.corrcoef(found, sign * np.sin(6 * x))[0, 1] > 0.98
        # as the rows of a table of that label
        there = model.predict_latent({"t": x, "sex": np.full(50, level)}) - model.effects()["Intercept"]["mean"]
        np.testing.assert_allclose(found, there, atol=1e-9)
    with pytest.raises(ValueError, match="level must be one of"):
        model.curve("s(t):sex")
    varying = AdditiveModel("y ~ s(t, by=z)", hyperparameters="fixed").fit(frame)
    x, curve = varying.curve("s(t):z", 5)
    at = {"t": x, "z": np.full(5, 1.0)}
    there = varying.predict_latent(at) - varying.effects()["Intercept"]["mean"]
    np.testing.assert_allclose([row["mean"] for row in curve.rows], there, atol=1e-9)
    with pytest.raises(ValueError, match="one curve for all rows"):
        varying.curve("s(t):z", level="f")


def test_slopes_count_with_their_group_in_shares_and_are_compared_with_slopes():
    """The share of a group does not depend on the units of the column with slopes."""
    rng = np.random.default_rng(4)
    g, x = rng.integers(0, 8, 120), rng.uniform(2.0, 4.0, 120)
    y = x + (0.5 + 1.0 * x) * rng.normal(size=8)[g] + 0.5 * rng.normal(size=120)
    found = {}
    for unit in (1.0, 100.0):
        priors = {"sd(g)": 0.5, "sd(g:x)": 1.0 / unit, "cor(g)": 0.3, "sigma": 0.5}
        model = AdditiveModel("y ~ x + (x | g)", priors=priors).fit({"y": y, "x": unit * x, "g": g})
        found[unit] = model.intraclass_correlation("g")
        names = model.contrasts("g").names
    within = np.mean(0.5**2 + 2 * 0.3 * 0.5 * 1.0 * x + x**2)
    assert found[1.0] == pytest.approx(within / (within + 0.25), rel=1e-9)
    assert found[100.0] == pytest.approx(found[1.0], rel=1e-9)
    assert len(names) == 2 * 28
    assert all(("g:x" in pair.split(" - ")[0]) == ("g:x" in pair.split(" - ")[1]) for pair in names)


def test_labels_that_were_not_seen_are_listed_by_term():
    frame = table() | {"site": np.resize([1, 2, 3], 36)}
    model = AdditiveModel("y ~ x + (1 | g/site)", hyperparameters="fixed").fit(frame)
    assert model.unseen_groups(frame) == {}
    new = {"x": np.zeros(4), "g": np.array(["a", "A", "e", "a"]), "site": np.array([1, 2, 1, 7])}
    found = model.unseen_groups(new)
    assert list(found) == ["g", "g:site"]
    assert found["g"].rows.tolist() == [False, True, True, False]
    assert found["g"].labels == ("A", "e")
    assert found["g"].meant == {"A": "a"}
    assert found["g:site"].labels == ("A:2", "e:1", "a:7")
    assert found["g:site"].meant == {"A:2": "a:2"}
