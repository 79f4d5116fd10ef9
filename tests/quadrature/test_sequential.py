"""The sequential design: where it looks, when it stops, and what it keeps when the integrand fails."""

import numpy as np
import pytest

from latlin.numerics.alerts import ConvergenceWarning
from latlin.quadrature import (
    BayesianQuadrature,
    Gaussian,
    GaussianMixture,
    Hyperparameters,
    IntegrandError,
    Uniform,
    importance_sampling,
    integrate,
    monte_carlo,
)
from latlin.quadrature.sequential import Candidates, choose, integral_variance, resolve_score, ucb, uncertainty

FIXED = Hyperparameters(np.array([0.8, 0.8]), nugget=1e-6, variance=1.0)


def peak(x):
    return np.exp(-0.5 * np.sum(((x - 0.3) / 0.6) ** 2, axis=1))


def peak_integral(d):
    return (0.6 / np.sqrt(1.36) * np.exp(-0.5 * 0.09 / 1.36)) ** d


@pytest.mark.parametrize("acquisition", ["integral-variance", "uncertainty", "ucb"])
@pytest.mark.parametrize("warp", [None, "wsabi-l", "wsabi-m"])
def test_every_design_reaches_one_percent(acquisition, warp):
    result = integrate(
        peak, Gaussian([0.0, 0.0], 1.0), 45, hyperparameters="ml", acquisition=acquisition, warp=warp, random_state=0
    )
    assert result.mean == pytest.approx(peak_integral(2), rel=0.01)
    assert result.n_evaluations == 45
    assert np.all(np.diff(result.trace.evaluations) > 0)


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52"])
@pytest.mark.parametrize(
    "measure",
    [Uniform([-1.0], [2.0]), GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [0.2, 0.5])],
    ids=["box", "mixture"],
)
def test_every_kernel_and_measure(kernel, measure):
    reference = monte_carlo(peak, measure, 400_000, random_state=1)
    result = integrate(peak, measure, 25, kernel=kernel, random_state=0)
    assert abs(result.mean - reference.mean) < 5.0 * reference.sd + 3.0 * result.sd


def test_score_is_what_an_evaluation_takes_from_the_variance():
    measure = Gaussian([0.0, 0.0], 1.0)
    engine = BayesianQuadrature(measure, kernel="rbf", hyperparameters=FIXED)
    x = measure.sample(12, random_state=0)
    belief = engine.condition(x, peak(x))
    new = np.array([[0.4, -0.9]])
    p = belief.process
    scale = belief.scale
    candidates = Candidates(
        np.ones(1), belief.mean(new), belief.amplitude(new), p.variances(new), belief.link(new), p.variance * p.nugget
    )
    after = engine.condition(np.vstack([x, new]), np.append(peak(x), 0.7))
    gained = belief.integral.variance - after.integral.variance
    assert integral_variance(candidates)[0] == pytest.approx(gained, rel=1e-5)
    assert uncertainty(candidates)[0] == pytest.approx(scale**2 * p.variances(new)[0])


def test_batch_avoids_itself():
    measure = Uniform(0.0, 1.0, dim=2)
    engine = BayesianQuadrature(measure, kernel="rbf", hyperparameters=FIXED)
    x = measure.sample(5, random_state=0)
    belief = engine.condition(x, peak(x))
    chosen = choose(belief, uncertainty, measure.standard, 6, np.random.default_rng(0))
    together = np.linalg.norm(chosen[:, None] - chosen[None], axis=2)[np.triu_indices(6, 1)]
    assert together.min() > 0.3
    assert np.all(np.isfinite(measure.standard.logpdf(chosen)))


def test_ucb_prefers_large_values():
    flat = np.ones(2)
    c = Candidates(flat, np.array([1.0, 5.0]), flat, np.array([1.0, 0.9]), flat, 0.0)
    assert np.argmax(ucb(0.0)(c)) == 0
    assert np.argmax(ucb(10.0)(c)) == 1
    with pytest.raises(ValueError, match="acquisition must be one of"):
        resolve_score("entropy", 1.0)


def test_stops_when_the_error_bar_is_small():
    result = integrate(peak, Gaussian(0.0, 1.0), 200, rtol=1e-2, hyperparameters="ml", random_state=0)
    assert result.converged
    assert result.n_evaluations < 60
    assert result.sd <= 1e-2 * result.mean


def test_says_when_the_budget_was_too_small():
    with pytest.warns(ConvergenceWarning, match="raise budget"):
        result = integrate(peak, Gaussian([0.0, 0.0, 0.0], 1.0), 16, rtol=1e-9, hyperparameters="ml", random_state=0)
    assert not result.converged


def test_same_seed_same_answer():
    run = [integrate(peak, Gaussian(0.0, 1.0), 12, random_state=3, hyperparameters="ml") for _ in range(2)]
    np.testing.assert_array_equal(run[0].evaluations.points, run[1].evaluations.points)
    assert run[0].mean == run[1].mean


def test_log_values_of_any_size():
    plain = integrate(peak, Gaussian(0.0, 1.0), 14, warp="wsabi-l", hyperparameters="ml", random_state=0)

    def log_peak(x):
        with np.errstate(divide="ignore"):
            return np.log(peak(x)) - 5000.0

    logged = integrate(log_peak, Gaussian(0.0, 1.0), 14, warp="wsabi-l", log=True, hyperparameters="ml", random_state=0)
    assert logged.log_evidence == pytest.approx(plain.log_evidence - 5000.0, abs=1e-6)
    assert logged.log_evidence == pytest.approx(np.log(peak_integral(1)) - 5000.0, abs=0.02)
    assert logged.evidence_kind == "approximation"


class FailsLater:
    """Fine at first, then not."""

    def __init__(self, calls, failure):
        self.left = calls
        self.failure = failure

    def __call__(self, x):
        self.left -= 1
        if self.left >= 0:
            return peak(x)
        if isinstance(self.failure, Exception):
            raise self.failure
        values = peak(x)
        values[-1] = self.failure
        return values


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (RuntimeError("solver broke"), "raised RuntimeError: solver broke"),
        (np.nan, "integrand is nan at"),
        (np.inf, "integrand is inf at"),
    ],
)
def test_evaluations_survive_a_failure(failure, text):
    measure = Gaussian([0.0, 0.0], 1.0)
    with pytest.raises(IntegrandError, match=text) as caught:
        integrate(FailsLater(3, failure), measure, 60, hyperparameters="ml", random_state=0)
    kept = caught.value.evaluations
    assert len(kept.values) >= 12
    np.testing.assert_array_equal(kept.values, peak(kept.points))
    result = integrate(peak, measure, 30, start=kept, hyperparameters="ml", random_state=0)
    np.testing.assert_array_equal(result.evaluations.points[: len(kept.values)], kept.points)
    assert result.mean == pytest.approx(peak_integral(2), rel=0.05)


def test_bad_shapes_and_negative_values_keep_evaluations_too():
    with pytest.raises(IntegrandError, match=r"must return an array of shape \(8,\)"):
        integrate(lambda x: x, Gaussian(0.0, 1.0), 10)
    with pytest.raises(IntegrandError, match="nowhere negative") as caught:
        integrate(lambda x: x[:, 0], Gaussian(0.0, 1.0), 10, warp="wsabi-l")
    assert len(caught.value.evaluations.values) == 8


def test_duplicate_points_and_an_outlier_give_a_sound_answer():
    x = np.repeat(np.linspace(-2.0, 2.0, 9), 2)[:, None]
    belief = BayesianQuadrature(Gaussian(0.0, 1.0)).condition(x, peak(x))
    assert belief.integral.mean == pytest.approx(peak_integral(1), rel=0.02)
    y = peak(x)
    y[4] = 1e12
    moments = BayesianQuadrature(Gaussian(0.0, 1.0), noisy=True).condition(x, y).integral
    assert np.isfinite(moments.mean)
    assert np.sqrt(moments.variance) > 1e9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"budget": 2}, "budget and initial must be at least 3"),
        ({"budget": 10, "batch": 0}, "batch must be at least 1"),
        ({"budget": 10, "start": ([[0.0]], [1.0, 2.0])}, "start must have one number for each of its 1 points"),
        ({"budget": 10, "start": ([[0.0, 1.0]], [1.0])}, r"start must have shape \(n, 1\)"),
    ],
)
def test_bad_plans_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        integrate(peak, Gaussian(0.0, 1.0), **arguments)


def test_unknown_option_is_named():
    with pytest.raises(TypeError, match="colour"):
        integrate(peak, Gaussian(0.0, 1.0), 10, colour="red")


def test_monte_carlo_error_bar():
    # (7.19) corrected and (7.20): Var f / S with the deviations squared
    result = monte_carlo(peak, Gaussian(0.0, 1.0), 5_000, random_state=0)
    assert result.sd == pytest.approx(np.sqrt(np.var(result.evaluations.values, ddof=1) / 5_000))
    assert abs(result.mean - peak_integral(1)) < 4.0 * result.sd


def test_importance_sampling_helps_where_the_proposal_is_good():
    measure, proposal = Gaussian(0.0, 1.0), Gaussian(0.22, 0.3)
    plain = monte_carlo(peak, measure, 5_000, random_state=0)
    weighted = importance_sampling(peak, measure, proposal, 5_000, random_state=0)
    assert abs(weighted.mean - peak_integral(1)) < 4.0 * weighted.sd
    assert weighted.sd < 0.5 * plain.sd
    with pytest.raises(ValueError, match="proposal has 2 coordinates, the measure 1"):
        importance_sampling(peak, measure, Gaussian([0.0, 0.0], 1.0), 10)
    with pytest.raises(ValueError, match="n must be an integer of at least 2"):
        monte_carlo(peak, measure, 1)


def test_interval_has_its_level():
    result = monte_carlo(peak, Gaussian(0.0, 1.0), 1_000, random_state=0)
    low, high = result.interval(0.95)
    assert (high - low) / result.sd == pytest.approx(2.0 * 1.9623, rel=1e-3)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        result.interval(95)
