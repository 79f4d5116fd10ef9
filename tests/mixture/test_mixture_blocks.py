"""Mixtures of rows in blocks: the numbers of the fit in memory, however the rows are cut."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from latlin.distributed.blocks import Block, LocalBlocks
from latlin.mixture import BayesianGaussianMixture, priors
from latlin.mixture.model import read_rows
from latlin.numerics.alerts import ConvergenceWarning

COVARIANCES = ["fixed", "spherical", "diagonal", "full", "tied"]
LABELS = np.random.default_rng(1).integers(3, size=240)


def clusters(missing=0.0):
    rng = np.random.default_rng(0)
    X = np.array([[0.0, 0.0, 4.0], [5.0, 0.0, 0.0], [0.0, 6.0, 0.0]])[LABELS] + rng.standard_normal((240, 3)) + 20.0
    X[rng.random(X.shape) < missing] = np.nan
    return X


def fitted(X, sample_weight=None, **options):
    """A fit of a few steps."""
    options = {"covariance": "full", "max_iter": 4, "split_merge": 2, "n_init": 2, "random_state": 0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BayesianGaussianMixture(4, **options).fit(X, sample_weight=sample_weight)


def check_alike(one, other):
    for name in ("weights_", "means_", "covariances_", "lower_bound_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(one.trace_, other.trace_, rtol=1e-10)
    assert (one.n_iter_, one.n_active_) == (other.n_iter_, other.n_active_)


@pytest.mark.parametrize("rows", [7, 100, 1000])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_blocks_give_the_fit_in_memory(covariance, rows):
    X = clusters()
    options = {"covariance": covariance}
    check_alike(fitted(LocalBlocks.of(X, rows=rows), **options), fitted(X, **options))


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "fixed"])
def test_any_number_of_steps(covariance, steps):
    X = 0.4 * clusters()  # components that overlap move for long
    options = {"covariance": covariance, "max_iter": steps, "tol": 0.0, "split_merge": 0, "n_init": 1}
    options["covariance_prior"] = 1.0  # one that is learnt has its own steps
    expected = fitted(X, **options)
    assert expected.n_iter_ == steps
    for rows in (7, 1000):
        check_alike(fitted(LocalBlocks.of(X, rows=rows), **options), expected)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_whole_fits_with_moves(covariance):
    X = 0.4 * clusters()
    options = {"covariance": covariance, "max_iter": 1000, "tol": 1e-6, "split_merge": 10}
    expected = fitted(X, **options)
    assert expected.converged_
    check_alike(fitted(LocalBlocks.of(X, rows=50), **options), expected)


def test_dask_on_threads_gives_the_fit_in_memory():
    arrays = pytest.importorskip("dask.array")
    X, options = 0.4 * clusters(), {"max_iter": 20, "split_merge": 10}
    check_alike(fitted(arrays.from_array(X, chunks=((40, 13, 130, 57), -1)), **options), fitted(X, **options))


def test_sparse_blocks_are_those_rows():
    arrays, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask").delayed
    X = np.where(np.random.default_rng(2).random((240, 3)) < 0.5, 0.0, clusters())
    parts = [sparse.csr_array(X[start : start + 80]) for start in (0, 80, 160)]
    chunked = arrays.concatenate([arrays.from_delayed(delayed(part), part.shape, float) for part in parts])
    model, expected = fitted(chunked), fitted(X)
    check_alike(model, expected)
    np.testing.assert_allclose(model.predict_proba(chunked).compute(), expected.predict_proba(X), atol=1e-9)
    dense, thin = (stochastic(LocalBlocks.of(rows, rows=50)) for rows in (X, sparse.csr_array(X)))
    np.testing.assert_array_equal(thin.means_, dense.means_)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "natural", "step": "robbins-monro", "weight_prior": "stick-breaking"},
        {"algorithm": "gradient", "covariance": "fixed"},
    ],
)
def test_other_ways_to_climb(options):
    X = clusters()
    check_alike(fitted(LocalBlocks.of(X, rows=50), **options), fitted(X, **options))


@pytest.mark.parametrize("covariance", ["full", "tied", "fixed"])
def test_missing_entries_are_integrated_out(covariance):
    X = clusters(missing=0.1)
    check_alike(fitted(LocalBlocks.of(X, rows=50), covariance=covariance), fitted(X, covariance=covariance))


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_weights_and_rows_that_do_not_count(missing):
    X, weights = clusters(missing), np.random.default_rng(2).integers(3, size=240).astype(float)
    weights[60:90] = 0.0  # a whole block
    X[100], weights[100] = np.nan, 0.0
    blocks = LocalBlocks.of(X, weight=weights, rows=30)
    check_alike(fitted(blocks), fitted(X, weights))


def test_a_sample_takes_the_same_rows_however_they_are_cut(monkeypatch):
    X, weights = clusters(), np.arange(240) % 3.0
    for rows in (7, 64, 1000):
        data = read_rows(LocalBlocks.of(X, weight=weights, rows=rows), missing_allowed=False)
        values, own = data.every(11)
        np.testing.assert_array_equal(values, X[weights > 0.0][::11])
        np.testing.assert_array_equal(own, weights[weights > 0.0][::11])
    monkeypatch.setattr(priors, "SAMPLE", 50)
    monkeypatch.setattr("latlin.mixture.estimator.SAMPLE", 50)
    check_alike(fitted(LocalBlocks.of(X, rows=64)), fitted(X))


def stochastic(X, seed=0, **options):
    return fitted(X, algorithm="stochastic-natural", max_iter=200, batch_size=40, random_state=seed, **options)


def test_mini_batches_are_the_same_every_time_and_find_the_clusters():
    blocks = LocalBlocks.of(clusters(), rows=50)
    one, same, other = (stochastic(blocks, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.means_, same.means_)
    assert not np.array_equal(one.means_, other.means_)
    assert adjusted_rand_score(LABELS, one.predict(clusters())) > 0.9


def drawn(state, batch):
    state[batch.values[:, 0].astype(int)] += batch.weights
    return state


def test_every_row_is_drawn_alike():
    X, weights = np.arange(60.0)[:, None], np.ones(60)
    weights[10:20] = 0.0
    data = read_rows(LocalBlocks.of(X, weight=weights, rows=25), missing_allowed=False)
    total = data.walk(drawn, np.zeros(60), 2000, 8, np.random.default_rng(0)) / 2000
    assert np.all(total[10:20] == 0.0)
    # a batch holds a row with probability S/N and gives it the weight N/S: sd of the mean √((N/S − 1)/2000)
    np.testing.assert_allclose(total[weights > 0.0], 1.0, atol=5.0 * np.sqrt((50 / 8 - 1) / 2000))


def with_entry(value):
    X = clusters()
    X[200, 1] = value
    return X


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        (LocalBlocks.of(with_entry(np.inf), rows=60), {}, "infinity"),
        (LocalBlocks.of(with_entry(np.nan), rows=60), {"algorithm": "stochastic-natural"}, "contains NaN"),
        (LocalBlocks.of(clusters() * [np.nan, 1.0, 1.0], rows=60), {}, "feature 0 of X has no observed value"),
        (LocalBlocks.of(clusters()[:3]), {}, "needs at least as many rows"),
        (LocalBlocks.of(clusters(), weight=np.zeros(240)), {}, "not all zero"),
        (LocalBlocks.of(clusters(), weight=-np.ones(240)), {}, "not negative"),
        (LocalBlocks.of(clusters()), {"algorithm": "iwae", "covariance": "fixed"}, "needs the rows in memory"),
    ],
)
def test_bad_blocks_are_refused(blocks, options, message):
    with pytest.raises(ValueError, match=message):
        fitted(blocks, **options)


def test_a_truth_is_refused():
    with pytest.raises(ValueError, match="truth is for rows in memory"):
        BayesianGaussianMixture(2).fit(LocalBlocks.of(clusters()), truth=(np.ones(1), np.zeros((1, 3))))


class Table(LocalBlocks):
    columns = ("a", "b", "c")


def test_float32_blocks_and_column_names():
    X = clusters().astype(np.float32)
    model = fitted(Table(Block(X), 100))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    check_alike(model, fitted(X))
