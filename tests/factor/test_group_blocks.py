"""Group factor analysis of rows in blocks: the numbers of the fit in memory, however the rows are cut."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from latlin.distributed.blocks import Block, LocalBlocks
from latlin.distributed.opening import open_side_by_side
from latlin.factor import GroupFactorAnalysis
from latlin.factor.group import blocks as _group_blocks
from latlin.factor.group.blocks import gram_root, prepare_blocks
from latlin.factor.group.data import fit_scaling, prepare, read_matrix
from latlin.numerics.alerts import ConvergenceWarning

SIZES = (8, 6, 5)
GROUPS = np.repeat([0, 1, 2], SIZES)


def draws(n=150, missing=0.0):
    rng = np.random.default_rng(0)
    z, active = rng.standard_normal((n, 3)), np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]])
    parts = [z @ (rng.standard_normal((3, d)) * a[:, None]) for d, a in zip(SIZES, active, strict=True)]
    X = 10.0 + np.concatenate(parts, axis=1) + 0.5 * rng.standard_normal((n, sum(SIZES)))
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
        X[: n // 4, GROUPS == 1] = np.nan
    return X


def fitted(X, groups=GROUPS, **options):
    """A fit of a few sweeps with rotations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GroupFactorAnalysis(5, **{"max_iter": 5, "random_state": 0, **options}).fit(X, groups=groups)


def check_alike(one, other):
    """Everything to ten digits, signs of factors included."""
    assert one.n_factors_ == other.n_factors_
    np.testing.assert_allclose(one.relevance_, other.relevance_, rtol=1e-10)
    for name in ("components_", "mean_", "noise_variance_", "explained_variance_", "trace_", "lower_bound_"):
        got, expected = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("sweeps", [1, 2, 5, 10, 20])
@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_blocks_give_the_fit_in_memory(sweeps, missing):
    X = draws(missing=missing)
    expected = fitted(X, max_iter=sweeps, tol=0.0)
    assert expected.n_iter_ >= sweeps
    for rows in (7, 64, 1000):
        check_alike(fitted(LocalBlocks.of(X, rows=rows), max_iter=sweeps, tol=0.0), expected)


@pytest.mark.parametrize("sweeps", [1, 2, 5, 10, 20])
def test_dask_on_threads_gives_the_fit_in_memory(sweeps):
    arrays = pytest.importorskip("dask.array")
    X = draws(missing=0.05)
    chunked = arrays.from_array(X, chunks=((40, 13, 60, 37), -1))
    check_alike(fitted(chunked, max_iter=sweeps), fitted(X, max_iter=sweeps))


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 1},
        {"rank": 2, "prune": False},
        {"noise": "feature", "scale": "feature"},
        {"n_init": 3},
        {"prune": False},
        {"rotate": False},
        {"rotate": False, "prune": False, "rank": 2},
    ],
)
def test_options_mean_the_same(options):
    X = draws()
    check_alike(fitted(LocalBlocks.of(X, rows=40), max_iter=20, **options), fitted(X, max_iter=20, **options))


def test_rounding_of_the_data_stays_rounding():
    """A rotation that stops on its way multiplies rounding errors by ten and more, sweep by sweep."""
    X = draws()
    moved = X * (1.0 + 1e-14 * np.random.default_rng(1).standard_normal(X.shape))
    check_alike(fitted(moved, max_iter=20), fitted(X, max_iter=20))


def test_a_fit_to_the_end_gives_the_same_numbers():
    X = draws(missing=0.05)
    one, other = (fitted(data, max_iter=2000) for data in (LocalBlocks.of(X, rows=40), X))
    assert one.converged_
    assert other.converged_
    assert one.n_iter_ == other.n_iter_
    check_alike(one, other)


def test_more_factors_than_columns_start_with_noise():
    X = draws()[:, :4]
    options = {"groups": [0, 0, 1, 1], "prune": False, "rotate": False}
    check_alike(fitted(LocalBlocks.of(X, rows=40), **options), fitted(X, **options))


def test_many_columns_take_passes_and_no_square_matrix(monkeypatch):
    X = draws()
    expected = fitted(X)
    monkeypatch.setattr(_group_blocks, "DENSE_UP_TO", 4)
    check_alike(fitted(LocalBlocks.of(X, rows=40)), expected)


def test_sparse_blocks_are_those_rows():
    X = np.where(np.random.default_rng(1).random((150, sum(SIZES))) < 0.6, 0.0, draws())
    blocks = LocalBlocks.of(sparse.csr_array(X), rows=40)
    model, expected = fitted(blocks), fitted(X)
    check_alike(model, expected)
    np.testing.assert_allclose(model.transform(blocks), expected.transform(X), atol=1e-8)


def test_columns_in_any_order():
    X, order = draws(), np.random.default_rng(1).permutation(sum(SIZES))
    groups = GROUPS[order]
    check_alike(fitted(LocalBlocks.of(X[:, order], rows=40), groups), fitted(X[:, order], groups))


def test_views_in_files_are_read_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr("latlin.distributed.blocks.BLOCK_BYTES", 4096)
    monkeypatch.setattr("latlin.distributed.opening.BLOCK_BYTES", 4096)
    X = draws(missing=0.05)
    views = {}
    for name in range(3):
        part = X[:, name == GROUPS]
        np.save(tmp_path / f"{name}.npy", part)
        views[f"view {name}"] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    model = fitted(views, None)
    assert open_side_by_side(views).n_blocks > 2
    check_alike(model, fitted({name: np.array(view) for name, view in views.items()}, None))
    assert not hasattr(model, "latents_")
    model.save(tmp_path / "model")
    again = GroupFactorAnalysis.load(tmp_path / "model")
    np.testing.assert_array_equal(again.transform(views), model.transform(views))


@pytest.mark.parametrize("start", ["random", "principal"])
def test_starts_are_those_in_memory(start):
    X = draws(missing=0.05)
    views, joined = read_matrix(X, GROUPS)
    memory = prepare(joined, views, fit_scaling(joined, views, "view"), False).rows
    blocks = prepare_blocks(LocalBlocks.of(X, rows=40), views, "view", False)[0].rows
    rank = 25  # more than there are columns
    one, other = (getattr(rows, start)(rank, np.random.default_rng(3)) for rows in (blocks, memory))
    np.testing.assert_allclose(one.cross, other.cross, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(one.moments, other.moments, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(one.latent.T @ one.latent, one.moments.sum(axis=0), rtol=1e-12, atol=1e-10)


def test_a_root_keeps_small_columns():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((50, 4)) * [1.0, 1e-9, 1e5, 0.0]
    root = gram_root(z.T @ z)
    size = np.sqrt(np.diagonal(z.T @ z))
    np.testing.assert_allclose((root.T @ root)[:3, :3] / size[:3], (z.T @ z)[:3, :3] / size[:3], rtol=1e-12, atol=1e-20)
    assert np.abs(root[:, 3]).max() < 1e-100


def changed(column, value):
    X = draws()
    X[:, column] = value
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (LocalBlocks.of(changed(9, np.nan), rows=60), r"no observed entry in column\(s\) \[9\]"),
        (LocalBlocks.of(changed(9, 3.0), rows=60), r"constant in column\(s\) \[9\]"),
        (LocalBlocks.of(changed(9, np.inf), rows=60), "infinity"),
        (LocalBlocks.of(draws()[:1]), "at least 2 samples"),
    ],
)
def test_bad_blocks_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        fitted(X)


def test_views_that_do_not_belong_together_are_refused(tmp_path):
    big = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=(2**22, 5))
    with pytest.raises(ValueError, match=r"same number of rows: 0 has 4194304, 1 has 10"):
        fitted([big, np.zeros((10, 2))], None)
    with pytest.raises(ValueError, match="view 1 is None"):
        fitted([big, None], None)
    with pytest.raises(ValueError, match="groups go with one matrix"):
        fitted([big, big], GROUPS)


class Table(LocalBlocks):
    columns = tuple("abcdefghijklmnopqrs")


def test_column_names_are_kept():
    model = fitted(Table(Block(draws()), 100))
    assert model.feature_names_in_.tolist() == list("abcdefghijklmnopqrs")
