"""Subsamples of rows: spread, weighted, and honestly compared."""

import numpy as np
import pytest

from latlin.quadrature import subsample
from latlin.quadrature.kernels import KERNELS

DATA = np.random.default_rng(0).standard_normal((600, 2)) * [1.0, 5.0]


def smooth(x):
    return np.sin(x[:, 0]) + np.cos(x[:, 1] / 5.0) + 0.3 * x[:, 0] * x[:, 1] / 5.0


def test_each_choice_has_the_largest_variance_left():
    chosen = subsample(DATA, 8).indices
    z = (DATA - DATA.mean(axis=0)) / DATA.std(axis=0)
    k = KERNELS["rbf"].gram(z, z, np.full(2, np.sqrt(2.0)))
    for step in range(1, 8):
        s = chosen[:step]
        inside = k[np.ix_(s, s)] + 1e-6 * np.eye(step)
        variance = 1.0 - np.einsum("in,ij,jn->n", k[s], np.linalg.inv(inside), k[s])
        assert variance[chosen[step]] >= variance.max() - 1e-6


def test_rows_are_distinct_and_weights_sum_to_one():
    for how in ("active", "random"):
        chosen = subsample(DATA, 30, how, random_state=0)
        assert len(set(chosen.indices.tolist())) == 30
        assert chosen.weights.sum() == pytest.approx(1.0)


def test_weighted_active_beats_random_and_unweighted_active_does_not():
    truth = smooth(DATA).mean()
    active = subsample(DATA, 25)
    values = smooth(DATA[active.indices])
    random = [smooth(DATA[subsample(DATA, 25, "random", random_state=s).indices]).mean() for s in range(200)]
    rms = np.sqrt(np.mean((np.array(random) - truth) ** 2))
    assert abs(active.weights @ values - truth) < 0.1 * rms
    assert abs(values.mean() - truth) > rms


def test_all_rows_may_be_chosen_and_duplicates_are_no_trouble():
    data = np.repeat(DATA[:10], 2, axis=0)
    chosen = subsample(data, 20)
    assert sorted(chosen.indices.tolist()) == list(range(20))
    assert np.all(np.isfinite(chosen.weights))


def test_constant_column_is_no_trouble():
    chosen = subsample(np.column_stack([DATA[:, 0], np.ones(600)]), 5)
    assert np.all(np.isfinite(chosen.weights))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((DATA, 0), "k must be between 1 and the number of rows 600, got 0"),
        ((DATA, 601), "k must be between 1"),
        ((DATA[:, 0], 3), "data must be a finite matrix"),
        ((np.full((5, 1), np.nan), 3), "data must be a finite matrix"),
        ((DATA, 3, "best"), "how must be one of 'active', 'random', got 'best'"),
    ],
)
def test_bad_input_is_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        subsample(*arguments)
