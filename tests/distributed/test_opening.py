"""What counts as blocked, and how arrays of this machine are opened."""

import subprocess
import sys

import numpy as np
import pytest

from latlin.distributed.blocks import LocalBlocks
from latlin.distributed.opening import is_blocked, open_blocks


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_arrays_in_memory_are_not_blocked_and_large_mapped_ones_are(mapped, tmp_path):
    assert not any(map(is_blocked, [np.ones((2, 2)), [[1.0]], None, "rows", mapped]))
    large = np.memmap(tmp_path / "large", np.float32, "w+", shape=(2**20, 17))
    assert is_blocked(large)
    assert not is_blocked(np.asarray(large))
    assert is_blocked(LocalBlocks.of(mapped))


def test_dask_is_not_imported_to_find_out():
    code = (
        "import sys, numpy; from latlin.distributed.opening import is_blocked, open_blocks; "
        "is_blocked(numpy.ones((2, 2))); open_blocks(numpy.ones((2, 2))); sys.exit('dask' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def sums(block):
    return block.X.sum(axis=0), block.y.sum(), block.weight.sum(), block.offset.sum()


def test_mapped_rows_are_opened_with_what_belongs_to_them(mapped):
    blocks = open_blocks(mapped, np.ones(6), weight=[2.0] * 6, offset=np.zeros(6))
    assert [np.asarray(part).tolist() for part in blocks.total(sums)] == [[30.0, 36.0], 6.0, 12.0, 0.0]
    assert open_blocks(blocks) is blocks


@pytest.mark.parametrize(
    ("X", "beside", "text"),
    [
        (np.ones((3, 2)), {"y": np.ones(4)}, "y has shape"),
        (np.ones((3, 2)), {"offset": 1.0}, "offset has shape"),
        (np.ones(3), {}, "two dimensions"),
        (np.ones((0, 3)), {}, "no rows"),
        (np.ones((3, 0)), {}, "no columns"),
        (np.ones((3, 2), dtype=complex), {}, "real numbers"),
        (np.ones((3, 2)), {"weight": np.ones(2)}, "sample_weight has shape"),
        (LocalBlocks.of(np.ones((3, 2))), {"weight": np.ones(3)}, "sample_weight was given beside X"),
    ],
)
def test_what_does_not_fit_is_named(X, beside, text):
    with pytest.raises(ValueError, match=text):
        open_blocks(X, **beside)
