"""Mini-batches whose rows are drawn with unequal chances: unbiased sums that vary less."""

import numpy as np
import pytest

from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.sweep import CompleteRows, active_chances, draw_unequal


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
    for name, chances in (("uniform", None), ("active", active_chances(x))):
        rows = CompleteRows(x, None, chances)
        batches = [rows.batch(40, rng, whole=400) for _ in range(800)]
        sums[name] = np.array([(b.values.T * b.weights) @ b.values for b in batches])
    spread = {name: own.std(axis=0) for name, own in sums.items()}
    assert np.all(spread["active"] < 0.6 * spread["uniform"])
    error = np.abs(sums["active"].mean(axis=0) - exact)
    assert np.all(error < 4.0 * spread["active"] / np.sqrt(800))


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", ["stochastic-natural", "sgd"])
def test_stochastic_algorithms_weigh_rows_by_one_over_their_probability(algorithm, monkeypatch):
    x, seen = heavy(3, 60), []
    kept = CompleteRows.batch

    def batch(rows, size, rng, whole=None):
        seen.append(kept(rows, size, rng, whole))
        return seen[-1]

    monkeypatch.setattr(CompleteRows, "batch", batch)
    options = {"n_init": 1, "batch_size": 20, "max_iter": 5, "covariance": "fixed", "random_state": 0}
    BayesianGaussianMixture(2, algorithm=algorithm, batch="active", **options).fit(x)
    chances = active_chances(x)
    assert seen
    for rows in seen:
        place = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in rows.values]
        # the rarer a row is drawn the more it counts; none less than once
        order = np.argsort(chances[place])
        assert np.all(np.diff(rows.weights[order]) <= 1e-12)
        assert rows.weights.min() >= 1.0
        assert np.ptp(rows.weights) > 0.5


def test_a_fit_by_such_batches_ends_where_uniform_ones_do():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((60, 2)) - 4.0, rng.standard_normal((60, 2)) + 4.0])
    options = {"algorithm": "stochastic-natural", "n_init": 1, "batch_size": 30, "split_merge": 0, "tol": 1e-2}
    bounds = [BayesianGaussianMixture(2, batch=b, random_state=0, **options).fit(x) for b in ("uniform", "active")]
    assert bounds[1].lower_bound_ == pytest.approx(bounds[0].lower_bound_, rel=0.02)
    np.testing.assert_allclose(np.sort(bounds[1].means_[:, 0]), [-4.0, 4.0], atol=0.5)


def test_a_wrong_way_to_draw_gets_a_sentence():
    with pytest.raises(ValueError, match="batch must be one of"):
        BayesianGaussianMixture(2, batch="nearest").fit(heavy(0, 20))
