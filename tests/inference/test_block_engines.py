"""Engines on blocks of rows: the same posterior for any chunking, dense and sparse, and that of the rows in memory."""

import pickle
from dataclasses import dataclass
from functools import partial

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, Posterior, SiteFactor, engines, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.distributed.opening import open_blocks
from latlin.inference import engine as engine_room
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.engine import form_of
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.ascent import Checkpoint

N, D = 60, 6
FAMILIES = {
    "logit": lambda y: potentials.Logit((np.asarray(y) > 0.0).astype(float)),
    "probit": lambda y: potentials.Probit((np.asarray(y) > 0.0).astype(float)),
    "poisson": lambda y: potentials.Poisson(np.round(np.exp(0.5 * np.asarray(y)))),
    "student-t": lambda y: potentials.StudentT(4.0, y, 0.7),
    "laplace": lambda y: potentials.Laplace(y, 0.8),
    "gaussian": lambda y: potentials.Gaussian(y, 0.9),
}
PRIORS = {
    "diagonal": GaussianFactor(np.linspace(-0.2, 0.3, D), np.linspace(0.5, 2.0, D)),
    "full": GaussianFactor(0.1, np.eye(D) + 0.3),
    "laplace": SiteFactor(None, potentials.Laplace(np.zeros(D), np.linspace(0.5, 1.0, D))),
    "student-t": SiteFactor(None, potentials.StudentT(3.0, np.zeros(D), np.linspace(0.5, 1.0, D))),
}
ENGINES = {
    "map": engines.MAP(tol=1e-9),
    "laplace": engines.Laplace(tol=1e-9),
    "full": engines.GaussianKL(tol=1e-9),
    "diagonal": engines.GaussianKL("diagonal", tol=1e-9),
    "banded": engines.GaussianKL("banded", bandwidth=1, tol=1e-9),
    "chevron": engines.GaussianKL("chevron", rank=2, tol=1e-9),
    "low-rank": engines.GaussianKL("low-rank", rank=1, tol=1e-8),
    "sparse": engines.GaussianKL("sparse", pattern=np.triu(np.ones((D, D)), 4), tol=1e-9),
}


@dataclass(frozen=True)
class Plain:
    """Rows and responses as they are."""

    family: str

    def __call__(self, block):
        rows = block.X if sparse.issparse(block.X) else np.ascontiguousarray(block.X, float)
        return Observed(rows, FAMILIES[self.family](block.y), block.weight, block.offset)

    def kind(self):
        return FAMILIES[self.family](0.0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.6)
    y = X @ np.linspace(-1.0, 1.5, D) + rng.logistic(size=N)
    return X, y, rng.random(N) + 0.5, 0.3 * rng.standard_normal(N)


def in_memory(data, prior, family, kind=np.asarray):
    X, y, weight, offset = data
    return LatentLinearModel([PRIORS[prior], SiteFactor(kind(X), FAMILIES[family](y), weight, offset)])


def in_blocks(data, prior, family, rows, kind=np.asarray):
    X, *beside = data
    blocks = LocalBlocks.of(kind(X), *beside, rows=rows)
    return BlockModel(LatentLinearModel([PRIORS[prior]]), blocks, Plain(family))


def agree(a, b, accuracy):
    assert a.mean == pytest.approx(b.mean, abs=accuracy)
    assert a.covariance() == pytest.approx(b.covariance(), abs=accuracy)
    if b.evidence_kind != "none":
        assert a.log_evidence == pytest.approx(b.log_evidence, rel=accuracy)
    assert a.evidence_kind == b.evidence_kind


def shortened(engine, steps):
    return type(engine)(**{**vars(engine), "max_iter": steps})


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_any_chunking_gives_the_same_numbers_at_a_fixed_number_of_steps(data, engine, kind):
    short = shortened(ENGINES[engine], 3 if engine in ("map", "laplace", "full") else 1)
    whole = infer(in_blocks(data, "diagonal", "logit", N, kind), short)
    for rows in (11, 40):
        parts = infer(in_blocks(data, "diagonal", "logit", rows, kind), short)
        agree(parts, whole, 1e-10)
        assert parts.trace == pytest.approx(whole.trace, rel=1e-12)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_blocks_of_one_row(data):
    short = shortened(ENGINES["full"], 2)
    agree(*(infer(in_blocks(data, "diagonal", "logit", rows), short) for rows in (1, N)), 1e-10)


@pytest.mark.parametrize("engine", ["map", "laplace", "diagonal", "banded", "chevron", "sparse"])
def test_the_steps_are_those_in_memory(data, engine):
    two = shortened(ENGINES[engine], 2)
    with pytest.warns(ConvergenceWarning):
        memory = infer(in_memory(data, "diagonal", "logit"), two)
    with pytest.warns(ConvergenceWarning):
        blocks = infer(in_blocks(data, "diagonal", "logit", 25), two)
    assert blocks.trace == pytest.approx(memory.trace, rel=1e-12)
    agree(blocks, memory, 1e-10)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize(
    ("prior", "family"),
    [
        *(("diagonal", family) for family in ("logit", "poisson", "student-t", "laplace")),
        *((prior, "logit") for prior in ("full", "laplace", "student-t")),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_full_steps_by_sums_are_those_in_memory(data, prior, family, kind):
    for steps in (1, 2, 3, 7):
        short = engines.GaussianKL(tol=0.0, max_iter=steps, algorithm="sums")
        memory = infer(in_memory(data, prior, family, kind), short)
        assert len(memory.trace) == steps
        for rows in (N, 25):
            blocks = infer(in_blocks(data, prior, family, rows, kind), short)
            agree(blocks, memory, 1e-10)
            assert blocks.trace == pytest.approx(memory.trace, rel=1e-12)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize("family", ["logit", "poisson", "student-t"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_full_steps_on_dask_threads_are_those_in_memory(data, family, kind):
    X, *beside = data
    chunks = (17, 20, 23)
    rows = da.from_array(kind(X), chunks=(chunks, D), asarray=False)
    there = open_blocks(rows, *(da.from_array(values, chunks=(chunks,)) for values in beside))
    for steps in (1, 2, 3, 7):
        short = engines.GaussianKL(tol=0.0, max_iter=steps, algorithm="sums")
        memory = infer(in_memory(data, "diagonal", family, kind), short)
        agree(infer(BlockModel(LatentLinearModel([PRIORS["diagonal"]]), there, Plain(family)), short), memory, 1e-10)


@pytest.mark.parametrize(
    ("engine", "prior", "family"),
    [
        *((engine, "diagonal", "logit") for engine in ENGINES),
        *(("full", prior, "probit") for prior in PRIORS),
        *(("full", "diagonal", family) for family in FAMILIES),
        *(("diagonal", prior, "poisson") for prior in ("full", "laplace", "student-t")),
        ("laplace", "student-t", "student-t"),
        ("map", "full", "poisson"),
        ("laplace", "diagonal", "gaussian"),
    ],
)
def test_the_optimum_is_that_in_memory(data, engine, prior, family):
    # a gradient of 1e-9 (1e-8) in whitened coordinates, where the curvature is at least one
    memory = infer(in_memory(data, prior, family), ENGINES[engine])
    blocks = infer(in_blocks(data, prior, family, 32), ENGINES[engine])
    assert blocks.converged
    agree(blocks, memory, 1e-7)


def test_the_mode_among_kinks_is_that_in_memory(data):
    memory, blocks = (build(data, "laplace", "laplace") for build in (in_memory, partial(in_blocks, rows=32)))
    assert infer(blocks, "map").mean == pytest.approx(infer(memory, "map").mean, abs=1e-5)


@pytest.mark.parametrize(
    ("engine", "prior", "family"),
    [
        ("full", "diagonal", "student-t"),
        ("full", "laplace", "laplace"),
        ("laplace", "diagonal", "student-t"),
        ("laplace", "student-t", "student-t"),
        ("laplace", "full", "logit"),
    ],
)
def test_the_gradient_of_the_evidence_is_that_in_memory(data, engine, prior, family):
    memory = evidence_gradient(infer(in_memory(data, prior, family), ENGINES[engine]))
    blocks = evidence_gradient(infer(in_blocks(data, prior, family, 32), ENGINES[engine]))
    for a, b in zip(blocks.gaussians, memory.gaussians, strict=True):
        assert a.d_mean == pytest.approx(b.d_mean, abs=1e-6)
        assert a.d_cov == pytest.approx(b.d_cov, abs=1e-6)
    *own_a, last_a = blocks.sites
    *own_b, last_b = memory.sites
    for a, b in zip(own_a, own_b, strict=True):
        assert {name: a[name] == pytest.approx(b[name], abs=1e-6) for name in b} == dict.fromkeys(b, True)
    # of the observations, totals
    assert set(last_a) == set(last_b) - {"loc"}
    for name, total in last_a.items():
        assert total == pytest.approx(np.sum(last_b[name]), abs=1e-6)


def test_a_fit_starts_from_another_posterior(data):
    model = in_blocks(data, "diagonal", "logit", 30)
    first = infer(model, ENGINES["full"])
    for engine in ("full", "diagonal", "laplace"):
        cold, warm = infer(model, ENGINES[engine]), infer(model, ENGINES[engine], start=first)
        agree(warm, cold, 1e-7)
    assert infer(model, ENGINES["full"], start=first).n_iter == 1
    agree(infer(model, ENGINES["full"], start=infer(model, "map")), first, 1e-7)


@dataclass
class Failing:
    """Blocks that are lost after some passes."""

    blocks: LocalBlocks
    passes: float
    n_columns: int = D
    n_blocks: int = 2

    def total(self, summand, *shared):
        self.passes -= 1
        if self.passes < 0:
            raise ConnectionError("lost")
        return self.blocks.total(summand, *shared)


@pytest.mark.parametrize("engine", ["diagonal", "chevron", "low-rank"])
def test_curvatures_are_kept_here_and_found_again_elsewhere_with_the_same_digits(data, engine):
    here = in_blocks(data, "diagonal", "logit", 25)
    elsewhere = BlockModel(here.own, Failing(here.blocks, np.inf), here.reading)
    kept, found = infer(here, ENGINES[engine]), infer(elsewhere, ENGINES[engine])
    assert np.array_equal(kept.trace, found.trace)
    assert np.array_equal(kept.covariance(), found.covariance())


@pytest.mark.parametrize("engine", ["laplace", "full", "diagonal", "chevron"])
def test_a_lost_fit_goes_on_from_its_checkpoint(data, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_room, "Checkpoint", partial(Checkpoint, every=0.0))
    model, file = in_blocks(data, "diagonal", "logit", 30), tmp_path / "state"
    counted = Failing(model.blocks, 10_000)
    whole = infer(BlockModel(model.own, counted, model.reading), ENGINES[engine])
    lost = BlockModel(model.own, Failing(model.blocks, 10_000 - counted.passes - 2), model.reading)
    with pytest.raises(ConnectionError):
        infer(lost, ENGINES[engine], checkpoint=file)
    assert file.exists()
    resumed = infer(model, ENGINES[engine], checkpoint=file)
    assert np.array_equal(resumed.trace, whole.trace)
    assert np.array_equal(resumed.mean, whole.mean)
    assert np.array_equal(resumed.covariance(), whole.covariance())
    other = BlockModel(model.own, model.blocks, model.reading, signature="other rows")
    with pytest.raises(ValueError, match="belongs to another model"):
        infer(other, ENGINES[engine], checkpoint=file)


def test_auto_says_why(data):
    assert "auto: rows in blocks, 6 dimensions: a full covariance" in infer(in_blocks(data, "full", "logit", 9)).message


def test_what_cannot_be_done_is_said(data):
    logistic, robust = in_blocks(data, "diagonal", "logit", 30), in_blocks(data, "diagonal", "laplace", 30)
    with pytest.raises(ValueError, match=r"engine 'ep' cannot be used.*'gkl'.*'laplace' and 'map'"):
        infer(logistic, "ep")
    with pytest.raises(ValueError, match=r"algorithm='sites' cannot be used.*take the rows into memory"):
        infer(logistic, engines.GaussianKL(algorithm="sites"))
    with pytest.raises(ValueError, match="subspace"):
        infer(logistic, engines.GaussianKL("subspace", rank=2))
    with pytest.raises(ValueError, match="Laplace sites have a kink; use engine 'gkl'"):
        infer(robust, "laplace")
    with pytest.raises(ValueError, match="on w itself"):
        BlockModel(LatentLinearModel([GaussianFactor(H=np.eye(D))]), logistic.blocks, logistic.reading)
    with pytest.raises(ValueError, match="take the rows into memory"):
        infer(logistic, "laplace").diagnose()


def test_copies_leave_the_rows_behind(data):
    post = infer(in_blocks(data, "diagonal", "logit", 30), "laplace")
    copy = pickle.loads(pickle.dumps(post))
    assert np.array_equal(copy.mean, post.mean)
    with pytest.raises(ValueError, match="left behind"):
        infer(copy.model, "laplace")


@dataclass(frozen=True)
class OneStep:
    """A user's engine: the Gaussian after one Newton step from the prior's mean, by whatever form the model has."""

    name = "one-step"

    def run(self, model, *, start=None, verbose=False, checkpoint=None):
        form = form_of(model)
        first = form.expand(np.zeros(form.rank))
        found = form.gaussian_at(form.expand(form.newton_step(first)))
        trace = np.array([first.objective])
        return Posterior(model, found.density, 0.0, "approximation", self.name, False, 1, trace, 0.0, "one step")


def test_a_new_engine_reaches_blocks_by_the_form_of_a_model(data):
    memory = infer(in_memory(data, "full", "logit"), OneStep())
    for rows in (11, N):
        agree(infer(in_blocks(data, "full", "logit", rows), OneStep()), memory, 1e-10)


def test_a_chevron_goes_on_from_a_chevron_on_blocks_as_in_memory(data):
    engine = ENGINES["chevron"]
    memory, blocks = in_memory(data, "diagonal", "logit"), in_blocks(data, "diagonal", "logit", 25)
    first = infer(memory, engine)
    agree(infer(blocks, engine, start=first), infer(memory, engine, start=first), 1e-8)


@dataclass(frozen=True)
class SteepTimes:
    """Times whose risk grows with the third power."""

    def __call__(self, block):
        return Observed(
            block.X, potentials.Weibull(block.y, np.array([0.0, 0.0, 1.0])[: len(block.y)], 3.0), None, None
        )

    def kind(self):
        return potentials.Weibull(1.0, 0.0, 3.0)


def test_a_mode_that_is_flat_on_one_side_is_no_place_to_start_from():
    rows = np.array([[6.4684676, 4.14101756], [0.5501477, -1.6855211], [1.16808015, -0.7548471]])
    times = np.array([0.50923, 0.05, 1.68507])
    prior = GaussianFactor([-0.0696, 0.9849], [1.322, 1.322])
    blocks = LocalBlocks.of(rows, times, rows=3)
    # the curvature at the mode leaves a Gaussian whose bound is −10¹¹⁶
    found = infer(BlockModel(LatentLinearModel([prior]), blocks, SteepTimes()), "gkl")
    sites = SiteFactor(rows, potentials.Weibull(times, [0.0, 0.0, 1.0], 3.0))
    expected = infer(LatentLinearModel([prior, sites]), "gkl")
    assert found.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
