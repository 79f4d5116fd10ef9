"""Sums over blocks: the tree, any block length, sparse and memory-mapped rows, blocks that a function changes."""

import numpy as np
import pytest
from scipy import sparse

from latlin.distributed.blocks import Block, LocalBlocks, MappedBlocks, add, combine_pairwise


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def moments(block, shift):
    return block.n_rows, (block.X - shift).sum(axis=0), block.X.T @ block.y


def level_by_level(parts):
    """The tree as its definition has it."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [f"({pair[0]}{pair[1]})" if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


@pytest.mark.parametrize("count", range(1, 20))
def test_the_tree_pairs_neighbours(count):
    letters = [chr(97 + i) for i in range(count)]
    assert combine_pairwise(letters, lambda a, b: f"({a}{b})") == level_by_level(letters)


def test_no_blocks_are_refused():
    with pytest.raises(ValueError, match="no blocks"):
        combine_pairwise([], add)


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_a_total_does_not_depend_on_the_blocks(rows, rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    blocks = LocalBlocks.of(X, y, rows=rows)
    n, first, product = blocks.total(moments, 0.5)
    assert n == 100
    assert blocks.n_blocks == -(-100 // rows)
    np.testing.assert_allclose(first, (X - 0.5).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(product, X.T @ y, rtol=1e-12)


def test_memory_mapped_rows(rng, tmp_path):
    X = rng.standard_normal((64, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    blocks = LocalBlocks.of(np.load(tmp_path / "x.npy", mmap_mode="r"), np.ones(64), rows=10)
    np.testing.assert_allclose(blocks.total(moments, 0.0)[1], X.sum(axis=0), rtol=1e-5)


def test_sparse_rows_stay_sparse(rng):
    X = sparse.random_array((60, 4), density=0.3, random_state=rng, format="csc")
    blocks = LocalBlocks.of(X, rows=25)
    assert blocks.each(is_sparse) == [True, True, True]


def is_sparse(block):
    return sparse.issparse(block.X) and block.X.format == "csr"


def doubled(block):
    return block._replace(X=2.0 * block.X)


def test_changed_blocks(rng):
    X, y = rng.standard_normal((30, 2)), np.ones(30)
    blocks = MappedBlocks(LocalBlocks.of(X, y, rows=8), doubled)
    np.testing.assert_allclose(blocks.total(moments, 0.0)[1], 2.0 * X.sum(axis=0), rtol=1e-12)
    assert blocks.n_columns == 2
    assert blocks.each(Block.n_rows.fget) == [8, 8, 8, 6]


def joined(block, state, suffix):
    return f"{state}{block.number}:{block.n_rows}{suffix}"


def test_a_fold_visits_the_blocks_in_order():
    blocks = LocalBlocks.of(np.zeros((10, 2)), rows=4)
    assert blocks.fold(joined, "", ";") == "0:4;1:4;2:2;"
    assert blocks.fold(joined, "", ";", order=[2, 0]) == "2:2;0:4;"
    assert MappedBlocks(blocks, halved).fold(joined, "", ";") == "0:2;1:2;2:1;"


def halved(block):
    return block._replace(X=block.X[: block.n_rows // 2])
