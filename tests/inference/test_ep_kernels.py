import numpy as np
import pytest

from latlin.inference.ep.kernels import rank_one, tilt, visit_sites
from latlin.inference.forms.free import NodeTarget, lay_even_nodes, lay_nodes
from latlin.potentials.logit import Logit


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rank_one_changes_the_factor_of_the_matrix(sign):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 6))
    a = a @ a.T + np.eye(6)
    x = 0.2 * rng.standard_normal(6)
    factor = np.ascontiguousarray(np.linalg.cholesky(a).T)
    assert rank_one(factor, x.copy(), sign)
    np.testing.assert_allclose(factor.T @ factor, a + sign * np.outer(x, x), atol=1e-12)
    np.testing.assert_array_equal(factor, np.triu(factor))


def test_rank_one_refuses_to_leave_the_cone():
    assert not rank_one(np.eye(3), np.array([0.0, 1.1, 0.0]), -1.0)


def _plan(mean, variance):
    potential = Logit(np.ones(len(mean)))
    _, tilted_mean, tilted_variance = potential.tilted_moments(mean, variance)
    target = NodeTarget(mean, variance, tilted_mean, tilted_variance)
    return potential, target, *lay_nodes(potential.log_density, target, potential.regions())


def _by_panels(potential, target):
    return lay_nodes(potential.log_density, target, potential.regions())


def _evenly(potential, target):
    return lay_even_nodes(potential.log_density, target, np.asarray(potential.strip))


@pytest.mark.parametrize(("lay", "widest", "tol"), [(_by_panels, 400.0, 1e-9), (_evenly, 4.0, 1e-10)])
def test_nodes_serve_gaussians_nearby(lay, widest, tol):
    mean, variance = np.array([-30.0, 0.3, 4.0]), np.array([0.01, 2.0, widest])
    potential, target, *_ = _plan(mean, variance)
    nodes, log_weights = lay(potential, target)
    work = np.empty(nodes.shape[1])
    for move, ratio in ((0.0, 1.0), (1.5, 0.5), (-1.5, 1.3), (1.8, 0.4), (-1.8, 1.4)):
        near, spread = mean + move * np.sqrt(variance), ratio * variance
        exact = np.array(potential.tilted_moments(near, spread))
        found = np.array([tilt(nodes[i], log_weights[i], near[i], spread[i], work) for i in range(3)]).T
        np.testing.assert_allclose(found[0], exact[0], rtol=tol, atol=tol)
        np.testing.assert_allclose(found[1], exact[1], atol=1e-9 * np.sqrt(variance).max())
        np.testing.assert_allclose(found[2], exact[2], rtol=10.0 * tol)


def test_equidistant_nodes_are_few():
    potential, target, *_ = _plan(np.array([-30.0, 0.3, 4.0]), np.array([0.01, 2.0, 4.0]))
    assert _evenly(potential, target)[0].shape[1] < 0.5 * _by_panels(potential, target)[0].shape[1]


def test_wide_gaussians_are_left_to_panels():
    potential, target, *_ = _plan(np.zeros(1), np.array([1e6]))
    assert lay_even_nodes(potential.log_density, target, np.asarray(potential.strip)) is None


def test_a_visit_stops_where_nodes_do_not_serve():
    rows = np.eye(3)
    _, target, nodes, log_weights = _plan(np.array([0.0, 0.0, 25.0]), np.ones(3))
    state = [np.eye(3), np.zeros(3), rows, np.zeros(3), np.zeros(3)]
    visited, intact = visit_sites(*state, 1.0, 1.0, nodes, log_weights, np.column_stack(target), True)
    assert (visited, intact) == (2, True)
    assert state[3][0] > 0
    assert state[3][2] == 0
