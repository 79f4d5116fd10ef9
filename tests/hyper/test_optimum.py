"""The search for the optimum of hyperparameters: with the curvature of held fits, and by rough fits first."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latlin.hyper.learn import maximise
from latlin.hyper.optimum import _interpolated, find_optimum, hessian_from_search
from latlin.hyper.space import Evaluation, Hyperparameter, Objective, Space
from latlin.priors import Flat

POSITIVE = (0.0, np.inf)


def scale_space(high: float = 1e3, start: float = 1.0) -> Space:
    return Space([Hyperparameter("scale", start, Flat(), POSITIVE, (1e-3, high))])


class ManyMeans:
    """The scale s of z ~ N(0, s²), each measured as y ~ N(z, 1): log evidence, slope, and the slope of a held fit.

    `sites` holds the likelihood's stand-ins, which here are the likelihood itself; else q(z) as a whole is held.
    """

    def __init__(self, count: int = 400, scale: float = 0.3, sites: bool = True) -> None:
        self.square = float(np.sum((np.random.default_rng(0).standard_normal(count) * np.hypot(1.0, scale)) ** 2))
        self.count, self.sites, self.calls = count, sites, 0

    @property
    def best(self) -> float:
        return float(np.sqrt(self.square / self.count - 1.0))

    def slope(self, s: float) -> float:
        total = 1.0 + s * s
        return (-self.count / total + self.square / total**2) * s

    def __call__(self, values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        self.calls += 1
        s, n = values["scale"], self.count
        total = 1.0 + s * s
        value = -0.5 * n * np.log(2.0 * np.pi * total) - 0.5 * self.square / total
        # Σ⟨z²⟩ under q at s
        moment = n * s * s / total + self.square * (s * s / total) ** 2

        def held(others: dict[str, float]) -> dict[str, float]:
            t = others["scale"]
            return {"scale": self.slope(t) if self.sites else -n / t + moment / t**3}

        assert held(values)["scale"] == pytest.approx(self.slope(s), rel=1e-9)
        return Evaluation(float(value), {"scale": self.slope(s)}, None, held)


@pytest.mark.parametrize(("sites", "most"), [(True, 3), (False, 15)])
def test_the_curvature_of_held_fits_finds_the_optimum_in_few_fits(sites: bool, most: int) -> None:
    means = ManyMeans(sites=sites)
    found = find_optimum(Objective(scale_space(), means, volume=False), gradient=1e-6, gain=1e-15)
    assert found.converged
    assert np.exp(found.u[0]) == pytest.approx(means.best, rel=1e-6)
    assert means.calls <= most


def test_without_the_curvature_of_held_fits_the_optimum_is_the_same() -> None:
    means = ManyMeans()

    def plain(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        return means(values, before, slopes)._replace(held=None)

    found = find_optimum(Objective(scale_space(), plain, volume=False), gradient=1e-6, gain=1e-15)
    assert np.exp(found.u[0]) == pytest.approx(means.best, rel=1e-6)


def test_an_optimum_beyond_the_end_is_found_at_the_end() -> None:
    found = find_optimum(Objective(scale_space(high=0.2, start=0.1), ManyMeans(), volume=False))
    assert found.converged
    assert np.exp(found.u[0]) == pytest.approx(0.2)
    assert found.at_bound.tolist() == [1]


def test_rough_fits_lead_to_the_optimum_of_the_exact_ones() -> None:
    exact, rough = ManyMeans(), ManyMeans()

    def tilted(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        # an evidence that is low by up to 1e-3 nat, as that of a fit that ended early
        found, s = rough(values, before, slopes), values["scale"]
        assert found.gradient is not None
        return found._replace(
            log_evidence=found.log_evidence - 1e-3 * np.sin(s) ** 2,
            gradient={"scale": found.gradient["scale"] - 1e-3 * np.sin(2.0 * s)},
        )

    learnt = maximise(scale_space(), exact, gradient=1e-6, gain=1e-15, curvature=False, rough=tilted)
    assert learnt.values["scale"] == pytest.approx(exact.best, rel=1e-6)
    assert learnt.log_evidence == exact(learnt.values, None, False).log_evidence
    assert rough.calls >= 2
    assert exact.calls <= 4


def test_three_slopes_find_the_optimum_of_one_number_in_fewer_fits_than_two() -> None:
    calls = []

    def skewed(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        # 50(u − e^u), u = log(scale/0.3): its slope bends
        calls.append(values["scale"])
        ratio = values["scale"] / 0.3
        slope = 50.0 * (1.0 - ratio)

        def held(others: dict[str, float]) -> dict[str, float]:
            away = np.log(others["scale"] / values["scale"])
            return {"scale": (slope - 300.0 * away) / others["scale"]}

        return Evaluation(50.0 * (np.log(ratio) - ratio), {"scale": slope / values["scale"]}, None, held)

    found = find_optimum(Objective(scale_space(), skewed, volume=False), gradient=1e-6, gain=1e-15)
    assert np.exp(found.u[0]) == pytest.approx(0.3, rel=1e-7)
    assert len(calls) <= 7


def test_a_step_of_nothing_stays_one():
    """Two pairs and a slope of zero: there is no step to compare with."""
    pairs = [(np.array([0.5]), np.array([1.0])), (np.array([0.25]), np.array([0.5]))]
    assert _interpolated(pairs, np.zeros(1), np.zeros(1)) == 0.0


def _bent(error: float = 0.0) -> Any:
    """50(u − e^u), u = log(scale/0.3), by fits that are held badly; its curvature at the optimum is 50."""
    calls: list[float] = []

    def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        calls.append(values["scale"])
        ratio = values["scale"] / 0.3
        slope = 50.0 * (1.0 - ratio)

        def held(others: dict[str, float]) -> dict[str, float]:
            away = np.log(others["scale"] / values["scale"])
            return {"scale": (slope - 90.0 * away) / others["scale"]}

        value, fit = 50.0 * (np.log(ratio) - ratio), SimpleNamespace(bound_error=error)
        return Evaluation(value, {"scale": slope / values["scale"]}, fit, held)

    return evaluate, calls


def test_the_last_slopes_of_a_search_tell_the_curvature_of_one_number() -> None:
    evaluate, calls = _bent()
    learnt = maximise(scale_space(), evaluate, gradient=1e-6, gain=1e-15, worth=1e-3)
    asked = len(calls)
    told, _ = _bent()
    search = find_optimum(Objective(scale_space(), told, volume=False), gradient=1e-6, gain=1e-15, worth=1e-3)
    assert hessian_from_search(search) is not None
    # the search, then Newton's steps alone
    assert asked <= search.n_fits + 2
    assert learnt.values["scale"] == pytest.approx(0.3, rel=1e-5)
    assert learnt.hessian is not None
    assert learnt.hessian[0, 0] == pytest.approx(-50.0, rel=5e-3)
    ((one, other, apart),) = learnt.sides
    assert one is not other
    assert 0.0 < abs(apart) < 0.1


def test_a_search_that_ended_at_once_or_far_away_tells_no_curvature() -> None:
    evaluate, _ = _bent()
    found = find_optimum(Objective(scale_space(start=0.3), evaluate, volume=False), gradient=1e-6, gain=1e-15)
    assert hessian_from_search(found) is None
    long = (np.array([0.3]), np.array([15.0]))
    assert hessian_from_search(replace(found, pairs=(long, long))) is None
    short = (np.array([1e-4]), np.array([5e-3]))
    assert hessian_from_search(replace(found, pairs=(long, short))) is None


def test_where_evidences_have_errors_one_side_tells_the_curvature() -> None:
    evaluate, calls = _bent(error=0.1)
    # where the search ends at once nothing is told
    learnt = maximise(scale_space(start=0.3), evaluate)
    assert len(calls) == 2
    assert learnt.hessian is not None
    assert learnt.hessian[0, 0] == pytest.approx(-50.0, rel=1e-2)
    exact, both = _bent()
    assert maximise(scale_space(start=0.3), exact).hessian[0, 0] == pytest.approx(-50.0, rel=1e-3)
    assert len(both) == 3
