"""Matérn kernels as chains: the same covariances, for short and long steps, and slopes as differences."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from latlin.gp.kernels import Columns
from latlin.gp.state_space import chain_of, length_slopes, parts_of, transitions

KERNELS = [
    Matern(0.7, nu=0.5),
    Matern([0.7], nu=1.5),
    ConstantKernel(1.3) * Matern(0.7, nu=2.5),
    ConstantKernel(2.0)
    * (Matern(0.3, nu=1.5) * ConstantKernel(0.4, "fixed") + Columns(Matern(3.0, "fixed", nu=0.5), 0)),
]


def seen_covariance(chain):
    states = chain.apply(np.eye(chain.dim)).reshape(chain.steps, chain.width, -1)
    seen = np.einsum("tdu,d->tu", states, chain.h)
    return seen @ seen.T


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("unit", [1e-4, 1.0, 30.0])
def test_a_chain_has_the_covariance_of_the_kernel(kernel, unit):
    t = unit * np.cumsum(np.random.default_rng(0).random(12) + 0.01)
    np.testing.assert_allclose(seen_covariance(chain_of(parts_of(kernel), t)), kernel(t[:, None]), atol=1e-13)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_steps_add_up(nu):
    (part,) = parts_of(Matern(0.8, nu=nu))
    (a, b, both), (v, w, whole) = transitions(part, np.array([0.3, 0.5, 0.8]))
    np.testing.assert_allclose(b @ a, both, atol=1e-14)
    np.testing.assert_allclose(b @ v @ b.T + w, whole, atol=1e-14)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_slopes_in_the_length_are_differences(nu):
    (part,) = parts_of(ConstantKernel(1.4) * Matern(0.8, nu=nu))
    spacing, step = np.array([0.01, 0.4, 3.0]), 1e-6
    ends = [transitions(part._replace(length=0.8 * np.exp(s)), spacing) for s in (step, -step)]
    found = length_slopes(part, spacing, transitions(part, spacing)[0])
    for k in range(2):
        np.testing.assert_allclose(found[k], (ends[0][k] - ends[1][k]) / (2 * step), atol=1e-9)


@pytest.mark.parametrize(
    "kernel", [RBF(), Matern(nu=0.7), Matern(nu=1.5) + WhiteKernel(), Matern(nu=1.5) * Matern(nu=1.5)]
)
def test_other_kernels_are_refused(kernel):
    with pytest.raises(ValueError, match="sum of Matern kernels"):
        parts_of(kernel)
