"""Covariances as objects: what their names stand for, their checks, and groups of coordinates."""

from dataclasses import dataclass

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare, covariances, engines, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.engine import fingerprint

D = 5
rng = np.random.default_rng(3)
X = rng.standard_normal((30, D)) + 0.7
Y = (rng.random(30) < 0.5).astype(float)
PRIOR = GaussianFactor(cov=2.0, dim=D)
MODEL = LatentLinearModel([PRIOR, SiteFactor(X, potentials.Logit(Y))])
PATTERN = np.eye(D) + np.eye(D, k=2)
PAIRS = [
    ({"covariance": "full"}, covariances.Full()),
    ({"covariance": "diagonal"}, covariances.Diagonal()),
    ({"covariance": "banded", "bandwidth": 2}, covariances.Banded(2)),
    ({"covariance": "chevron", "rank": 2}, covariances.Chevron(rank=2)),
    ({"covariance": "chevron", "rank": 2, "order": "natural"}, covariances.Chevron(2, order=[0, 1])),
    ({"covariance": "sparse", "pattern": PATTERN}, covariances.Sparse(PATTERN)),
    ({"covariance": "subspace", "rank": 2, "inner": "diagonal"}, covariances.Subspace(2, inner="diagonal")),
    ({"covariance": "low-rank", "rank": 1}, covariances.LowRank(1)),
]


@dataclass(frozen=True)
class Labels:
    def __call__(self, block):
        return Observed(np.ascontiguousarray(block.X), potentials.Logit(block.y), None, None)

    def kind(self):
        return potentials.Logit(0.0)


@pytest.mark.parametrize(("named", "covariance"), PAIRS, ids=[repr(pair[1]).split("(")[0] for pair in PAIRS])
def test_a_name_stands_for_an_object(named, covariance):
    by_name, by_object = infer(MODEL, engines.GaussianKL(**named)), infer(MODEL, engines.GaussianKL(covariance))
    assert np.array_equal(by_name.trace, by_object.trace)
    assert np.array_equal(by_name.covariance(), by_object.covariance())


def test_groups_of_coordinates_are_independent_of_each_other():
    groups = covariances.BlockDiagonal([[0, 3], [4, 1]])
    fitted = infer(MODEL, engines.GaussianKL(groups, tol=1e-8))
    apart = np.ones((D, D), bool)
    for group in ([0, 3], [4, 1], [2]):
        apart[np.ix_(group, group)] = False
    assert np.all(fitted.covariance()[apart] == 0.0)
    assert np.abs(fitted.covariance()[0, 3]) > 1e-3
    less, more = infer(MODEL, engines.GaussianKL("diagonal")), infer(MODEL, "gkl")
    assert less.log_evidence < fitted.log_evidence < more.log_evidence


def test_groups_that_no_site_couples_have_the_full_covariance():
    rows = X.copy()
    rows[:15, :2], rows[15:, 2:] = 0.0, 0.0
    model = LatentLinearModel([PRIOR, SiteFactor(rows, potentials.Logit(Y))])
    groups = infer(model, engines.GaussianKL(covariances.BlockDiagonal([[0, 1], [2, 3, 4]]), tol=1e-9))
    full = infer(model, engines.GaussianKL(tol=1e-9))
    assert groups.log_evidence == pytest.approx(full.log_evidence, abs=1e-9)
    np.testing.assert_allclose(groups.covariance(), full.covariance(), atol=1e-6)


def test_groups_of_coordinates_reach_blocks_of_rows():
    engine = engines.GaussianKL(covariances.BlockDiagonal([[0, 3], [4, 1]]), tol=1e-9)
    blocks = BlockModel(LatentLinearModel([PRIOR]), LocalBlocks.of(X, Y, rows=11), Labels())
    here, there = infer(MODEL, engine), infer(blocks, engine)
    assert there.trace == pytest.approx(here.trace, rel=1e-12)
    np.testing.assert_allclose(there.covariance(), here.covariance(), atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: covariances.Chevron(rank=0), "needs rank, an integer of at least 1, got 0"),
        (lambda: covariances.Banded(-1), "needs bandwidth, an integer of at least 0"),
        (lambda: covariances.Subspace(2, basis="best"), "basis must be one of eigen"),
        (lambda: covariances.BlockDiagonal([]), "needs blocks"),
        (lambda: covariances.BlockDiagonal([[0, 1], [1]]), "every coordinate at most once"),
        (lambda: infer(MODEL, engines.GaussianKL(covariances.BlockDiagonal([[0, 9]]))), "coordinates below 5, got 9"),
        (lambda: engines.GaussianKL(covariances.Diagonal(), rank=2), "rank is for a covariance that is given by its"),
        (lambda: engines.GaussianKL(3), "covariance must be a name or an object of latlin.covariances, got 3"),
        (lambda: engines.GaussianKL("chevron"), "covariance='chevron' needs rank"),
        (lambda: engines.GaussianKL("diagonal", rank=2), "rank has no meaning for covariance='diagonal'"),
        (lambda: engines.GaussianKL(covariances.LowRank(1), algorithm="sums"), "no meaning for covariance='low-rank'"),
    ],
)
def test_what_makes_no_sense_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tables_and_checkpoints_know_the_options():
    table = compare(MODEL, [engines.GaussianKL(covariances.Chevron(rank=2))])
    assert list(table.posteriors) == ["gkl(covariance=Chevron(rank=2))"]
    one, other = (engines.GaussianKL(covariances.Chevron(2, order=np.array([0, k]))) for k in (1, 2))
    assert fingerprint(MODEL, one) != fingerprint(MODEL, other)
    assert fingerprint(MODEL, one) == fingerprint(MODEL, engines.GaussianKL(one.covariance, tol=1e-3))
