"""What the rows of a fit show of a model of a formula: misfits that are known, and silence where the model is right."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

from latlin.additive import AdditiveModel
from latlin.additive.misfits import _SeenRows
from latlin.numerics.alerts import MisfitWarning
from latlin.report.additive import describe_additive

N, GROUPS, FORMULA = 400, 20, "y ~ x + (1 | g)"


def drawn(response, seed=0, rows=N):
    """A column, groups, and a response drawn at the linear predictor."""
    rng = np.random.default_rng(seed)
    x, g = rng.standard_normal(rows), rng.integers(0, GROUPS, rows)
    eta = 0.5 + x + rng.standard_normal(GROUPS)[g]
    return {"x": x, "g": np.array([f"g{k}" for k in g]), "y": response(rng, x, g, eta)}


def right(rng, x, g, eta):
    return eta + rng.standard_normal(len(x))


def squared(rng, x, g, eta):
    return right(rng, x, g, eta) + 0.6 * x**2


def sloped(rng, x, g, eta):
    return right(rng, x, g, eta) + rng.standard_normal(GROUPS)[g] * x


def uneven(rng, x, g, eta):
    return eta + np.exp(0.7 * x) * rng.standard_normal(len(x))


def far(rng, x, g, eta):
    return eta + rng.standard_t(2, len(x))


def fitted(response, formula=FORMULA, family="gaussian", seed=0, **options):
    frame = drawn(response, seed)
    return AdditiveModel(formula, family, **options).fit(frame)


@pytest.mark.parametrize(
    ("response", "name", "said", "remedy"),
    [
        (squared, "residuals", "residuals bend along 'x'", "Write s(x) or x + I(x**2)"),
        (sloped, "slopes", "the slope of 'x' differs between the levels of 'g'", "Write (1 + x | g)"),
        (uneven, "noise", "scatter", "log(y)"),
        (far, "noise", "some rows lie far from their prediction", "--family student-t"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_misfit_is_found_and_its_remedy_is_one_of_formulas(response, name, said, remedy, seed):
    (check,) = fitted(response, seed=seed).checks_.failed
    assert check.name == name
    assert said in check.sentence
    assert remedy in check.remedy


@pytest.mark.parametrize(
    ("response", "formula", "family"),
    [
        (right, FORMULA, "gaussian"),
        (squared, "y ~ x + I(x**2) + (1 | g)", "gaussian"),
        (squared, "y ~ s(x) + (1 | g)", "gaussian"),
        (sloped, "y ~ x + (1 + x | g)", "gaussian"),
        (far, FORMULA, "student-t"),
    ],
)
def test_the_remedy_fits(response, formula, family):
    found = fitted(response, formula, family).checks_
    assert found.verdict == "fits", found
    assert "noise" in [check.name for check in found.checks]


def test_slopes_differ_by_about_as_much_as_is_said():
    (check,) = fitted(sloped, seed=1).checks_.failed
    assert 0.6 < float(check.sentence.split("about ")[1].split(" ")[0]) < 1.4


@pytest.mark.parametrize(
    ("family", "response"),
    [
        ("poisson", lambda rng, x, g, eta: rng.poisson(np.exp(0.5 * eta + 0.4 * x**2))),
        ("bernoulli", lambda rng, x, g, eta: (rng.random(len(x)) < expit(eta + 1.5 * x**2 - 2.0)).astype(int)),
    ],
)
def test_curves_are_found_of_every_family(family, response):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        failed = fitted(response, family=family).checks_.failed
    assert any("residuals bend along 'x'" in check.sentence for check in failed)


def test_false_alarms_are_rare():
    """Of 200 data sets of the model itself."""
    failed = []
    for seed in range(200):
        frame = drawn(right, seed, rows=int(np.random.default_rng(seed).integers(60, 250)))
        priors = {"sd(g)": 1.0} if seed % 2 else {}
        found = AdditiveModel(FORMULA, hyperparameters="maximise", priors=priors).fit(frame).checks_
        failed += [check.name for check in found.failed]
    assert len(failed) <= 4, failed


def test_gradients_have_the_covariance_that_is_said():
    """Against V = (σ² I + H Q⁻¹ Hᵀ)⁻¹ of the marginal density of Gaussian rows."""
    frame = drawn(right)
    priors = {"sd(g)": 0.7, "sigma": 1.3}
    model = AdditiveModel(FORMULA, priors=priors, hyperparameters="fixed").fit(frame)
    problem, fit, values = model._problem_, model._fits[0], model._components[0].values
    seen = _SeenRows(problem, fit, values)
    H = problem.design.toarray()
    prior = np.linalg.inv(problem._precision(values)[0].toarray())
    V = np.linalg.inv(1.3**2 * np.eye(N) + H @ prior @ H.T)
    np.testing.assert_allclose(seen.slope, V @ (frame["y"] - H @ problem.mean), atol=1e-8)
    x = seen.columns[1][:, 0]
    levels = np.array([frame["g"] == level for level in problem.parts[1].levels]) * x
    scores = seen._scores(problem.design[:, 2:], x)
    np.testing.assert_allclose(scores.left, np.einsum("jn,nm,jm->j", levels, V, levels), rtol=1e-6)


def test_equal_rows_are_looked_at_once_each():
    """A table of equal rows has the residuals of the table that holds each of them once, with its own row numbers."""
    frame = drawn(lambda rng, x, g, eta: np.round(2.0 * eta + rng.standard_normal(len(x))), rows=150)
    frame["x"] = np.round(frame["x"])
    frame["y"][7] += 40.0
    twice = {name: np.concatenate([values, values]) for name, values in frame.items()}
    (check,) = AdditiveModel("y ~ x + (1 | g)").fit(twice).checks_.failed
    assert AdditiveModel("y ~ x + (1 | g)").fit(twice)._problem_.copies is not None
    assert "(rows 8, 158)" in check.sentence or "(rows 158, 8)" in check.sentence


def test_intervals_that_are_too_wide_have_the_remedy_of_their_residuals():
    frame = drawn(far, seed=1)
    checks = describe_additive(AdditiveModel(FORMULA).fit(frame), frame, draws=200).checks
    (coverage,) = [check for check in checks.failed if check.name == "coverage"]
    assert "most rows lie closer to their prediction than the noise says" in coverage.remedy
    assert "--family student-t (in Python family='student-t')" in coverage.remedy
    assert "lighter tails" not in str(checks)


def test_a_pattern_of_the_residuals_is_mended_before_their_intervals():
    frame = drawn(lambda rng, x, g, eta: right(rng, x, g, eta) + 3.0 * x**2)
    checks = describe_additive(AdditiveModel(FORMULA).fit(frame), frame, draws=200).checks
    assert [check.name for check in checks.failed] == ["residuals", "coverage"]
    assert checks.failed[1].remedy == "Mend the pattern of the residuals first"


def test_a_diagnosis_states_the_error_of_the_integral():
    frame = drawn(right, rows=80)
    posterior = AdditiveModel(FORMULA).fit(frame).posterior_
    found = posterior.diagnose(400, random_state=0)
    error = posterior.bound_error
    assert found.integration_error == error > 0.0
    assert f"by draws and ± {error:.2g} by the integral over hyperparameters" in str(found)
    low, high = found.evidence_interval
    assert low <= found.log_evidence - error
    assert high >= found.log_evidence + error
    held = AdditiveModel(FORMULA, hyperparameters="maximise").fit(frame).posterior_.diagnose(400, random_state=0)
    assert held.integration_error == 0.0
    assert "integral" not in str(held)


def test_rows_in_files_keep_what_was_found(tmp_path):
    """A model from a file has no rows to look at."""
    model = fitted(squared)
    model.save(tmp_path / "model")
    loaded = AdditiveModel.load(tmp_path / "model")
    assert [check.name for check in loaded.checks_.checks] == ["hyperparameters"]
    with pytest.raises(AttributeError, match="has no checks"):
        AdditiveModel(FORMULA).checks_  # noqa: B018
