"""Climbs that are looked at on the way: they rise, and end where the engines end."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from latlin.densities.bases import GeneralisedNormal
from latlin.inference.infer import infer
from latlin.potentials import Laplace
from latlin.reproduce import stopped_early
from latlin.reproduce.kernel_regression import Setting, affine, friedman, held_out, model_of, stopped

COUNTS = (1, 5, 20, 120)


@pytest.fixture(scope="module")
def problem():
    split = friedman(0, 12, 10)
    rows = np.concatenate([np.eye(12), Setting().rows(split)])
    return split, rows, Laplace(np.concatenate([np.zeros(12), split.y]), 0.16)


def test_the_gaussian_climb_ends_at_gaussian_kl(problem):
    split, rows, sites = problem
    stops = stopped_early.gaussian_stops(rows, sites, COUNTS)
    bounds = [stop.bound for stop in stops]
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(infer(model_of(split, Setting()), "gkl").log_evidence, abs=1e-3)


def test_the_affine_climb_ends_at_a_bound_of_its_family(problem):
    split, rows, sites = problem
    stops = stopped_early.affine_stops(rows, sites, GeneralisedNormal(1.5), COUNTS)
    bounds = [stop.bound for stop in stops]
    assert bounds == sorted(bounds)
    # local optima of one family: 0.02 nat a datum apart at most
    assert bounds[-1] == pytest.approx(infer(model_of(split, Setting()), affine()).log_evidence, abs=0.25)


@pytest.mark.parametrize("climb", [stopped_early.gaussian_stops, stopped_early.affine_stops])
def test_gradients_are_those_of_the_bound(problem, climb, monkeypatch):
    _, rows, sites = problem
    seen = []
    monkeypatch.setattr(stopped_early, "_path", lambda objective, start, counts: seen.append((objective, start)) or [])
    more = (GeneralisedNormal(1.5),) if climb is stopped_early.affine_stops else ()
    climb(rows, sites, *more, (1,))
    objective, start = seen[0]
    point = start + 0.05 * np.random.default_rng(0).standard_normal(len(start))
    slope = np.linalg.norm(objective(point)[1])
    assert check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], point, epsilon=1e-5) < 1e-3 * slope


def test_stops_have_bounds_and_scores_of_both(problem):
    found = stopped(problem[0], (2, 150))
    assert found.shape == (2, 2, 2)
    post = infer(model_of(problem[0], Setting()), "gkl")
    score = held_out(post.project(Setting().new_rows(problem[0])), problem[0].new_y, 0.16)
    assert found[1, 1, 0] == pytest.approx(score, abs=1e-2)
