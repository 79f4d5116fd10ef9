"""Sparse precisions with rows in blocks: the answers of the rows in memory, and the same digits for the same blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.distributed.blocks import Block, LocalBlocks
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.evidence.gradient import precision_slope

N, LEVELS = 500, 30
DIM = 2 + 2 * LEVELS


@dataclass(frozen=True)
class Plain:
    """Rows as they are, y of one family."""

    family: str

    def __call__(self, block: Block) -> Observed:
        return Observed(block.X, _potential(self.family, block.y), block.weight, block.offset)

    def kind(self):
        return _potential(self.family, np.array([1.0]))


def _potential(family, y):
    made = {"logit": potentials.Logit, "poisson": potentials.Poisson, "gaussian": lambda t: potentials.Gaussian(t, 0.8)}
    return made[family](y)


def _data(family):
    rng = np.random.default_rng(5)
    parts, eta = [sparse.csr_array(np.column_stack([np.ones(N), rng.standard_normal(N)]))], np.full(N, -0.2)
    for _ in range(2):
        labels = rng.integers(LEVELS, size=N)
        eta += 0.6 * rng.standard_normal(LEVELS)[labels]
        parts.append(sparse.csr_array((np.ones(N), (np.arange(N), labels)), shape=(N, LEVELS)))
    H = sparse.csr_array(sparse.hstack(parts, format="csr"))
    y = {
        "logit": lambda: np.where(rng.random(N) < 1 / (1 + np.exp(-eta)), 1.0, -1.0),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "gaussian": lambda: 3.0 + eta + 0.8 * rng.standard_normal(N),
    }[family]()
    return H, y, rng.uniform(0.5, 1.5, N), 0.1 * rng.standard_normal(N)


def _prior(scale=0.6):
    precision = sparse.diags_array(np.r_[0.01, 0.1, np.full(2 * LEVELS, scale**-2.0)])
    return GaussianFactor(np.linspace(-0.2, 0.2, DIM), precision=sparse.csr_array(precision))


def _models(family, constrained=False, rows=90):
    H, y, weight, offset = _data(family)
    constraints = [Constraint(np.r_[0.0, 0.0, np.ones(LEVELS), np.zeros(LEVELS)])] if constrained else []
    here = LatentLinearModel([_prior(), SiteFactor(H, _potential(family, y), weight, offset)], constraints)
    own = LatentLinearModel([_prior()], constraints)
    return here, BlockModel(own, LocalBlocks.of(H, y, weight, offset, rows=rows), Plain(family))


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(
    ("family", "engine"),
    [("logit", "gkl"), ("poisson", "gkl"), ("logit", "laplace"), ("logit", "map"), ("gaussian", "exact")],
)
def test_blocks_give_what_memory_gives(family, engine, constrained):
    here, blocks = _models(family, constrained)
    one, other = infer(here, engine), infer(blocks, engine)
    np.testing.assert_allclose(other.mean, one.mean, atol=2e-6 if engine != "exact" else 1e-9)
    if engine != "map":
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
        assert other.evidence_kind == one.evidence_kind
        np.testing.assert_allclose(other.variance, one.variance, rtol=1e-5)
    assert other.converged


def test_the_same_blocks_on_dask_give_the_same_digits():
    da = pytest.importorskip("dask.array")
    from latlin.distributed.dask_blocks import DaskBlocks

    _, blocks = _models("logit", rows=125)
    H, y, weight, offset = _data("logit")
    chunks = [da.from_array(H[k : k + 125].toarray(), chunks=(125, -1)) for k in range(0, N, 125)]
    rows = da.concatenate(chunks).map_blocks(sparse.csr_array, dtype=float)
    beside = [da.from_array(part, chunks=125) for part in (y, weight, offset)]
    elsewhere = BlockModel(blocks.own, DaskBlocks.of(rows, *beside), blocks.reading)
    one, other = infer(blocks, "gkl"), infer(elsewhere, "gkl")
    np.testing.assert_array_equal(one.mean, other.mean)
    assert one.log_evidence == other.log_evidence


def test_any_cut_is_the_same_to_rounding():
    few, many = (infer(_models("logit", rows=rows)[1], "gkl") for rows in (400, 37))
    np.testing.assert_allclose(few.mean, many.mean, atol=1e-9)
    assert few.log_evidence == pytest.approx(many.log_evidence, abs=1e-9)


def test_a_start_of_the_same_rows_is_taken(monkeypatch):
    _, blocks = _models("logit")
    first = infer(blocks, "gkl")
    other = BlockModel(LatentLinearModel([_prior(0.65)]), blocks.blocks, blocks.reading, kept=blocks.kept)
    passes = []
    monkeypatch.setattr(LocalBlocks, "total", lambda *a, own=LocalBlocks.total: passes.append(1) or own(*a))
    warm, between = infer(other, "gkl", start=first), len(passes)
    cold = infer(other, "gkl")
    # no mode is looked for
    assert between < len(passes) - between
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-8)


@pytest.mark.parametrize(("family", "engine"), [("logit", "gkl"), ("gaussian", "exact")])
def test_slopes_in_the_prior_are_those_of_memory(family, engine):
    here, blocks = _models(family)
    change = sparse.csr_array(sparse.diags_array(np.r_[0.0, 0.0, np.ones(2 * LEVELS)]))
    one, other = (precision_slope(infer(model, engine), change, 0, 2.0) for model in (here, blocks))
    assert other == pytest.approx(one, abs=1e-5)


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    from latlin.engines import GaussianKL

    _, blocks = _models("logit")
    path = tmp_path / "state"
    with pytest.warns(UserWarning, match="did not converge"):
        infer(blocks, GaussianKL(max_iter=2), checkpoint=path)
    again = infer(blocks, "gkl", checkpoint=path)
    whole = infer(blocks, "gkl")
    assert again.n_iter == whole.n_iter
    assert again.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)


def test_what_sparse_blocks_cannot_do_is_said():
    _, blocks = _models("logit")
    more = LatentLinearModel([_prior(), SiteFactor(None, potentials.Laplace())])
    with pytest.raises(ValueError, match="have no other sites on w"):
        infer(BlockModel(more, blocks.blocks, blocks.reading), "gkl")
    with pytest.raises(ValueError, match="in blocks of rows"):
        infer(blocks, "ep")
