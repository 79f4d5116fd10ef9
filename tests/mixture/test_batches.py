"""Mini-batches whose rows are drawn with unequal chances: unbiased sums that vary less."""

import numpy as np
import pytest

from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.sweep import CompleteRows, draw_unequal, outlying_chances


def heavy(seed, n=400):
    return np.random.default_rng(seed).standard_t(3, (n, 2))


def test_probabilities_of_being_in_the_batch_are_those_that_are_said():
    rng = np.random.default_rng(0)
    chances = np.array([0.6, 0.1, 0.1, 0.1, 0.05, 0.05])
    counts, said = np.zeros(6), np.zeros(6)
    for _ in range(2000):
        chosen, included = draw_unequal(chances, 3, rng)
        assert len(chosen) == len(set(chosen)) == 3
        counts[chosen] += 1
        said[chosen] = included
    # the first row is always in; the others share two places in proportion to their chances
    np.testing.assert_allclose(said, [1.0, 0.5, 0.5, 0.5, 0.25, 0.25])
    np.testing.assert_allclose(counts / 2000, said, atol=0.05)


def test_sums_are_unbiased_and_vary_less():
    x, rng = heavy(1), np.random.default_rng(2)
    exact = x.T @ x
    sums = {}
    for name, chances in (("uniform", None), ("outlying", outlying_chances(x))):
        rows = CompleteRows(x, None, chances)
        batches = [rows.batch(40, rng, whole=400) for _ in range(800)]
        sums[name] = np.array([(b.values.T * b.weights) @ b.values for b in batches])
    spread = {name: own.std(axis=0) for name, own in sums.items()}
    assert np.all(spread["outlying"] < 0.6 * spread["uniform"])
    error = np.abs(sums["outlying"].mean(axis=0) - exact)
    assert np.all(error < 4.0 * spread["outlying"] / np.sqrt(800))


def test_a_fit_by_such_batches_ends_where_uniform_ones_do():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((60, 2)) - 4.0, rng.standard_normal((60, 2)) + 4.0])
    options = {"algorithm": "stochastic-natural", "n_init": 1, "batch_size": 30, "split_merge": 0, "tol": 1e-2}
    bounds = [BayesianGaussianMixture(2, batch=b, random_state=0, **options).fit(x) for b in ("uniform", "outlying")]
    assert bounds[1].lower_bound_ == pytest.approx(bounds[0].lower_bound_, rel=0.02)
    np.testing.assert_allclose(np.sort(bounds[1].means_[:, 0]), [-4.0, 4.0], atol=0.5)


def test_a_wrong_way_to_draw_gets_a_sentence():
    with pytest.raises(ValueError, match="batch must be one of"):
        BayesianGaussianMixture(2, batch="active").fit(heavy(0, 20))
