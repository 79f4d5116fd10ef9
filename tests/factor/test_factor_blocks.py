"""Factor analysis of rows in blocks: the numbers of the fit in memory, however the rows are cut."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from latlin.distributed.blocks import Block, LocalBlocks
from latlin.factor import FactorAnalysis
from latlin.factor.analysis import blocks as block_room
from latlin.factor.analysis.blocks import BlockMoments, block_moments, read_columns
from latlin.numerics.alerts import ConvergenceWarning

CUTS = [7, 64, 1000]


def draws(n=300, d=9, rank=2, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    loadings, psi, mean = rng.standard_normal((rank, d)), rng.uniform(0.5, 2.0, d), 30.0 * rng.standard_normal(d)
    X = mean + rng.standard_normal((n, rank)) @ loadings + np.sqrt(psi) * rng.standard_normal((n, d))
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
    return X


def fitted(X, **options):
    """A fit of a few steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FactorAnalysis(2, **{"max_iter": 6, **options}).fit(X)


def check_alike(one, other, tolerance=1e-10):
    for name in ("mean_", "components_", "noise_variance_", "trace_"):
        expected = getattr(other, name)
        np.testing.assert_allclose(
            getattr(one, name), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(), err_msg=name
        )
    assert one.n_iter_ == other.n_iter_
    assert one.n_samples_seen_ == other.n_samples_seen_


@pytest.mark.parametrize("rows", CUTS)
@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
@pytest.mark.parametrize("method", ["ml", "em"])
def test_blocks_give_the_fit_in_memory(method, noise, rows):
    X = draws()
    check_alike(fitted(LocalBlocks.of(X, rows=rows), method=method, noise=noise), fitted(X, method=method, noise=noise))


@pytest.mark.parametrize("rows", CUTS)
@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_missing_entries_in_blocks(noise, rows):
    X = draws(missing=0.2)
    check_alike(fitted(LocalBlocks.of(X, rows=rows), method="em", noise=noise), fitted(X, method="em", noise=noise))


def with_zeros(X):
    """Most entries are zero."""
    return np.where(np.random.default_rng(3).random(X.shape) < 0.7, 0.0, X)


@pytest.mark.parametrize("method", ["ml", "em", "online-em"])
def test_sparse_blocks_are_those_rows(method):
    X, options = with_zeros(draws()), {"method": method, "shuffle": False, "batch_size": 10}
    blocks = LocalBlocks.of(sparse.csr_array(X), rows=50)
    expected = fitted(X, **options)
    model = fitted(blocks, **options)
    check_alike(model, expected)
    np.testing.assert_allclose(model.transform(blocks), expected.transform(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 20, 60])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_any_number_of_steps(missing, steps):
    X, options = draws(missing=missing), {"method": "em", "max_iter": steps, "tol": 0.0}
    expected = fitted(X, **options)
    assert expected.n_iter_ == steps
    for rows in CUTS:
        check_alike(fitted(LocalBlocks.of(X, rows=rows), **options), expected)


def test_dask_on_threads_gives_the_fit_in_memory():
    arrays = pytest.importorskip("dask.array")
    X, options = draws(), {"method": "em", "max_iter": 20, "tol": 0.0}
    check_alike(fitted(arrays.from_array(X, chunks=((40, 13, 190, 57), -1)), **options), fitted(X, **options))


def test_a_large_mean_costs_no_digits():
    X = draws() + 1e7
    model = FactorAnalysis(2).fit(LocalBlocks.of(X, rows=50))
    np.testing.assert_allclose(model.noise_variance_, FactorAnalysis(2).fit(X - 1e7).noise_variance_, rtol=1e-6)


@pytest.mark.parametrize("method", ["ml", "em"])
def test_many_columns_take_passes_and_no_covariance(method, monkeypatch):
    X = draws(d=60)
    dense = fitted(X, method=method)
    monkeypatch.setattr(block_room, "DENSE_UP_TO", 10)
    blocks = LocalBlocks.of(X, rows=64)
    assert isinstance(block_moments(blocks, read_columns(blocks))[0], BlockMoments)
    if method == "em":
        check_alike(fitted(blocks, method=method), dense)
    else:
        passes = FactorAnalysis(2, tol=1e-7).fit(blocks)
        np.testing.assert_allclose(passes.log_likelihood_, FactorAnalysis(2).fit(X).log_likelihood_, rtol=1e-9)


@pytest.mark.parametrize("method", ["online-em", "gradient"])
def test_blocks_in_order_are_the_stream_in_memory(method):
    X = draws().astype(np.float32)
    options = {"method": method, "shuffle": False, "n_passes": 2, "batch_size": 10}
    check_alike(fitted(LocalBlocks.of(X, rows=50), **options), fitted(X, **options), 1e-6)


def test_shuffled_blocks_are_the_same_every_time():
    blocks = LocalBlocks.of(draws(), rows=70)
    models = [fitted(blocks, method="online-em", random_state=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    assert not np.array_equal(models[0].components_, models[2].components_)
    assert models[0].stream_.count == 300
    models[0].partial_fit(draws(seed=1))
    assert models[0].n_samples_seen_ == 600


class Counted(LocalBlocks):
    """Blocks that note their passes."""

    @property
    def passes(self):
        return self.__dict__.setdefault("noted", [])

    def total(self, summand, *shared):
        self.passes.append(next(part.__name__ for part in (*shared[1:], summand) if callable(part)))
        return super().total(summand, *shared)


def test_the_number_of_factors_by_bic():
    X = draws(600)
    options = {"max_components": 3}
    model = FactorAnalysis("bic", **options).fit(LocalBlocks.of(X, rows=90))
    expected = FactorAnalysis("bic", **options).fit(X)
    assert model.choice_.n_components == expected.choice_.n_components == 2
    np.testing.assert_allclose(model.choice_.scores, expected.choice_.scores, rtol=1e-8)
    counted = Counted(LocalBlocks.of(X, rows=90).whole, 90)
    FactorAnalysis("bic", **options).fit(counted)
    assert counted.passes == ["_column_sums", "_column_sums", "_products"]
    with pytest.raises(ValueError, match="'held-out' needs the rows in memory"):
        FactorAnalysis("held-out", **options).fit(LocalBlocks.of(X))


def with_entry(value):
    X = draws()
    X[250, 3] = value
    return X


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        (LocalBlocks.of(with_entry(np.inf), rows=60), {}, "infinity"),
        (LocalBlocks.of(with_entry(np.nan), rows=60), {}, "method='em' fits them"),
        (LocalBlocks.of(draws()[:1]), {}, "at least 2 samples"),
        (LocalBlocks.of(draws()[:3]), {}, "needs more than 3 samples"),
        (LocalBlocks.of(draws() * [0.0] + [1.0] * 9), {}, "constant in column"),
        (LocalBlocks.of(draws() * ([np.nan] + [1.0] * 8), rows=60), {"method": "em"}, r"no observed entry.*\[0\]"),
        (LocalBlocks.of(draws(), weight=np.ones(300)), {}, "hold weights"),
    ],
)
def test_bad_blocks_are_refused(blocks, options, message):
    with pytest.raises(ValueError, match=message):
        FactorAnalysis(2, **options).fit(blocks)


class Table(LocalBlocks):
    columns = tuple("abcdefghi")


def test_column_names_are_kept():
    model = FactorAnalysis(2).fit(Table(Block(draws()), 100))
    assert model.feature_names_in_.tolist() == list("abcdefghi")
    assert model.n_features_in_ == 9
