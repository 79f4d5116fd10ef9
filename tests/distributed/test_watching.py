"""The bar of a fit on blocks: passes and blocks, on threads of this process, of Dask, and on a cluster; same digits."""

import re
from typing import NamedTuple

import numpy as np
import pytest

from latlin.distributed.blocks import LocalBlocks, count_parts
from latlin.distributed.opening import open_blocks
from latlin.linear import BayesianLogisticRegression
from latlin.numerics import progress
from latlin.numerics.ascent import Measure, Rules, ascend

pytest.importorskip("tqdm", reason="progress bars need tqdm")
da = pytest.importorskip("dask.array", reason="Dask is not installed")
X = np.random.default_rng(0).standard_normal((70, 3))


class Point(NamedTuple):
    w: np.ndarray


def sums(block, w):
    return block.X.T @ (block.X @ w), np.sum(block.X**2)


def folded(block, state):
    return state + block.X.sum(axis=0)


def n_rows(block):
    return block.n_rows


def climb(blocks, verbose):
    """Two steps of two passes each, and where they lead."""

    def step(point):
        product, size = blocks.total(sums, point.w)
        w = blocks.fold(folded, product / size)
        return Point(w), Measure(float(w @ w), 1.0)

    return ascend(step, Point(np.ones(3)), Rules(max_iter=2), label="climb", verbose=verbose, warn=False).state.w


@pytest.fixture
def every_block(monkeypatch):
    """The bar is drawn whenever it is told something."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed")
    with (
        distributed.LocalCluster(
            n_workers=1,
            processes=False,
            threads_per_worker=2,
            host="tcp://127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


def kinds(where, request):
    """Local blocks, those of Dask's threads, or of a cluster."""
    if where == "local":
        return LocalBlocks.of(X, rows=30)
    client = request.getfixturevalue("client") if where == "cluster" else None
    return open_blocks(da.from_array(X, chunks=(30, 3)), client=client)


@pytest.mark.parametrize("where", ["local", "threads", "cluster"])
def test_the_bar_shows_passes_and_blocks_and_changes_no_digit(where, request, every_block, capsys):
    blocks = kinds(where, request)
    capsys.readouterr()
    silent = climb(blocks, False)
    assert not capsys.readouterr().err
    np.testing.assert_array_equal(climb(blocks, True), silent)
    lines = re.split(r"[\r\n]", capsys.readouterr().err)
    for number in (1, 2, 3, 4):
        assert any(f"pass {number}, block 3 of 3" in line for line in lines)
    told = [(int(a), int(b)) for a, b in re.findall(r"pass (\d), block (\d) of 3", "\n".join(lines))]
    assert told == sorted(told)
    assert {(2, 1), (2, 2), (4, 1), (4, 2)} <= set(told)
    last = [line for line in lines if "pass 4" in line][-1]
    assert re.search(r"climb.*2/2 .*objective \d.*gradient.*pass 4, block 3 of 3", last)


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_blocks_are_told_one_by_one(where, request, monkeypatch):
    told = []
    monkeypatch.setattr("latlin.distributed.dask_blocks.begin_pass", lambda count: told.append)
    assert kinds(where, request).each(n_rows) == [30, 30, 10]
    assert told == sorted(told)
    assert told[-1] == 3


def test_without_a_bar_nothing_is_watched():
    parts = [1, 2]
    assert progress.begin_pass(3) is None
    assert count_parts(parts, 2) is parts


def test_a_bar_that_was_drawn_just_now_is_not_drawn_again(monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL", 1e9)
    with progress.progress("loop", 2, True):
        tell = progress.begin_pass(5)
        tell(1)
    assert "block" not in capsys.readouterr().err
    assert progress.begin_pass(5) is None


def test_the_search_for_hyperparameters_shows_its_passes(every_block, capsys):
    y = X[:, 0] > 0.3
    silent = BayesianLogisticRegression(engine="laplace").fit(LocalBlocks.of(X, y, rows=30))
    capsys.readouterr()
    shown = BayesianLogisticRegression(engine="laplace", verbose=True).fit(LocalBlocks.of(X, y, rows=30))
    assert re.search(r"over hyperparameters.* log evidence -\d.*, pass \d+, block 2 of 3", capsys.readouterr().err)
    assert shown.log_evidence_ == silent.log_evidence_
