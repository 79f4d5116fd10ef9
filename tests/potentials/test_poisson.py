"""Many counts at once: the compiled loop against the formulas for few, and blocks that make their constants anew."""

import copy
import pickle

import numpy as np

from latlin.numerics.special import LONG
from latlin.potentials import Poisson
from latlin.potentials.poisson import log_most_probable


def test_many_counts_have_the_values_of_few():
    rng = np.random.default_rng(0)
    y = np.r_[0.0, 1.0, 1e3, 1e9, 1e14, np.round(np.exp(rng.uniform(-3.0, 20.0, LONG)))]
    m = np.log(y + 0.5) + np.r_[0.0, 1e-9, 1e-5, 1e-7, 0.0, rng.uniform(-4.0, 4.0, LONG)]
    v = np.r_[0.0, 1.0, 1e-6, 1e-12, 0.0, rng.uniform(0.0, 3.0, LONG)]
    many, few = Poisson(y), [slice(k, k + 5000) for k in range(0, len(y), 5000)]
    other = np.concatenate([np.array(Poisson(y[at]).expected_log(m[at], v[at])) for at in few], axis=1)
    value, slope, by_variance = many.expected_log(m, v)
    np.testing.assert_allclose(by_variance, other[2], rtol=1e-12)
    # the slope of few is the difference of the count and its rate
    assert np.all(np.abs(slope - other[1]) <= 1e-12 * np.abs(other[1]) + 1e-14 * y)
    np.testing.assert_allclose(value, other[0], rtol=2e-12)
    plain = np.concatenate([Poisson(y[at]).log_density(m[at]) for at in few])
    np.testing.assert_allclose(many.log_density(m), plain, rtol=2e-12)
    # with more digits: ψ(log y) − y(e^t − 1 − t + v/2)
    some = y > 0
    t, count = (m - np.log(np.maximum(y, 1.0)) + 0.5 * v)[some].astype(np.longdouble), y[some]
    np.testing.assert_allclose(
        value[some], log_most_probable(count) - count * (np.expm1(t) - t + 0.5 * v[some]), rtol=1e-13
    )
    np.testing.assert_allclose(slope[some], -count * np.expm1(t), rtol=1e-13)


def test_what_a_block_has_made_does_not_outlive_its_counts():
    block = Poisson(np.arange(6.0))
    x = np.full(6, 0.3)
    values = block.log_density(x)
    np.testing.assert_array_equal(block.select([4, 1]).log_density(x[:2]), values[[4, 1]])
    assert vars(copy.copy(block)).keys() == vars(pickle.loads(pickle.dumps(block))).keys() == {"y"}
