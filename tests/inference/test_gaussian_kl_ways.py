"""Full Gaussian KL in memory: stand-ins for every site or sums over the rows, one optimum, and blocks' very steps."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.inference import engine as engine_room
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.engine import sum_form
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.forms.sums import BROAD
from latlin.inference.gaussian_kl import sums
from latlin.inference.gaussian_kl.full import TALL, BySites, BySumsFirst, choose_algorithm
from latlin.inference.gaussian_kl.sums import SumPlace
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.linalg import cholesky

D = 3
N = TALL * D
rng = np.random.default_rng(5)
X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7)
ETA = X @ [1.0, -0.5, 0.7]
OFFSET, WEIGHT = 0.2 * rng.standard_normal(N), rng.random(N) + 0.5
OBSERVED = {
    "logit": (rng.random(N) < 1.0 / (1.0 + np.exp(-ETA))).astype(float),
    "poisson": rng.poisson(np.exp(ETA)).astype(float),
    "laplace": ETA + rng.laplace(size=N),
}
FAMILIES = {"logit": potentials.Logit, "poisson": potentials.Poisson, "laplace": potentials.Laplace}
PRIOR = GaussianFactor([0.1, 0.0, -0.2], [1.0, 2.0, 0.5])
SITES, SUMS = (engines.GaussianKL(tol=1e-9, algorithm=word) for word in ("sites", "sums"))


@dataclass(frozen=True)
class Plain:
    family: str

    def __call__(self, block):
        return Observed(block.X, FAMILIES[self.family](block.y), block.weight, block.offset)

    def kind(self):
        return FAMILIES[self.family](0.0)


def in_memory(family, kind=np.asarray, prior=PRIOR):
    return LatentLinearModel([prior, SiteFactor(kind(X), FAMILIES[family](OBSERVED[family]), WEIGHT, OFFSET)])


def in_blocks(family, kind=np.asarray, rows=20):
    blocks = LocalBlocks.of(kind(X), OBSERVED[family], WEIGHT, OFFSET, rows=rows)
    return BlockModel(LatentLinearModel([PRIOR]), blocks, Plain(family))


def same(a, b, accuracy):
    assert a.mean == pytest.approx(b.mean, abs=accuracy)
    assert a.covariance() == pytest.approx(b.covariance(), abs=accuracy)
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=accuracy)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_tall_model_takes_the_steps_of_blocks_unasked(family, kind):
    for steps in (1, 2, 3, 7):
        short = engines.GaussianKL(max_iter=steps)
        memory, blocks = (infer(build(family, kind), short) for build in (in_memory, in_blocks))
        same(blocks, memory, 1e-10)
        assert blocks.n_iter == memory.n_iter
        assert blocks.trace == pytest.approx(memory.trace, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "prior",
    [PRIOR, GaussianFactor(0.3, np.eye(D) + 0.4), SiteFactor(None, potentials.Laplace(np.zeros(D), 0.7))],
    ids=["diagonal", "full", "laplace"],
)
def test_both_ways_end_at_one_posterior_with_one_set_of_stand_ins(family, prior):
    model = in_memory(family, prior=prior)
    sites, sums = infer(model, SITES), infer(model, SUMS)
    assert sites.converged
    assert sums.converged
    # a gradient of 1e-9 in whitened coordinates, where the curvature is at least one
    same(sums, sites, 1e-7)
    assert sums.sites.gamma == pytest.approx(sites.sites.gamma, rel=1e-6, abs=1e-7)
    assert sums.sites.nu == pytest.approx(sites.sites.nu, rel=1e-6, abs=1e-7)
    a, b = evidence_gradient(sums), evidence_gradient(sites)
    for one, other in zip(a.gaussians, b.gaussians, strict=True):
        assert one.d_mean == pytest.approx(other.d_mean, abs=1e-6)
        assert one.d_cov == pytest.approx(other.d_cov, abs=1e-6)


def test_stand_ins_come_in_the_order_of_the_factors():
    first, second = X[:40], X[40:]
    y = OBSERVED["logit"]
    factors = [
        SiteFactor(first, potentials.Logit(y[:40])),
        SiteFactor(None, potentials.Laplace(np.zeros(D), 0.7)),
        PRIOR,
        SiteFactor(aslinearoperator(second), potentials.Probit(y[40:]), WEIGHT[40:]),
    ]
    sites, sums = (infer(LatentLinearModel(factors), way) for way in (SITES, SUMS))
    same(sums, sites, 1e-7)
    assert len(sums.sites.gamma) == N + D
    assert sums.sites.gamma == pytest.approx(sites.sites.gamma, rel=1e-6)


def broad(family="logit"):
    """Coordinates enough that means are moved under one covariance."""
    random = np.random.default_rng(3)
    h = random.standard_normal((TALL * BROAD, BROAD)) / np.sqrt(BROAD)
    eta = h @ random.standard_normal(BROAD)
    y = random.poisson(np.exp(eta)) if family == "poisson" else eta + random.logistic(size=len(eta)) > 0.0
    return LatentLinearModel([GaussianFactor(0.1, 2.0, dim=BROAD), SiteFactor(h, FAMILIES[family](y))])


@pytest.mark.parametrize("family", ["logit", "poisson"])
def test_both_ways_end_at_one_posterior_in_many_dimensions(family):
    sites, sums = infer(broad(family), SITES), infer(broad(family), SUMS)
    assert sums.converged
    assert sums.n_iter <= 6
    same(sums, sites, 1e-7)
    assert sums.sites.gamma == pytest.approx(sites.sites.gamma, rel=1e-6)
    assert sums.sites.nu == pytest.approx(sites.sites.nu, rel=1e-6, abs=1e-7)


def test_a_mean_is_moved_to_where_the_bound_is_flat_in_it():
    form = sum_form(broad())
    m, precision = np.full(BROAD, 0.1), np.asfortranarray(20.0 * np.eye(BROAD))
    stayed, moved = (sums.evaluate(form, m, precision, moving=moving) for moving in (False, True))
    assert stayed.place.m == pytest.approx(m)
    assert moved.bound > stayed.bound + 0.1
    assert np.abs(moved.place.slope).max() < 0.1 * np.abs(stayed.place.slope).max()
    again = sums.evaluate(form, moved.place.m, precision, moving=False)
    assert again.bound == pytest.approx(moved.bound, rel=1e-12)
    assert again.place.precision_hat == pytest.approx(moved.place.precision_hat, rel=1e-12)


@pytest.mark.parametrize("tall", [False, True])
def test_rough_steps_raise_the_bound_from_the_mode(monkeypatch, tall):
    monkeypatch.setattr(sums, "WIDE", BROAD if tall else BROAD + 1)
    monkeypatch.setattr(sums, "MANY", TALL)
    form = sum_form(broad())
    optimum = infer(broad(), SITES).log_evidence
    first = sums._expand_mode(form, np.zeros(BROAD))
    plain = form.expand(form.coordinates(infer(broad(), "map").mean))
    laplace = sums.evaluate(form, plain.u, form.curvature(plain))
    # every step leaves less than a tenth of the error: one step, and another one where there are many rows
    share = 1e-2 if tall else 1e-1
    assert optimum - first.bound < share * (optimum - laplace.bound)
    assert first.bound <= optimum + 1e-9 * abs(optimum)


def test_rough_steps_that_lose_the_bound_are_not_taken():
    form = sum_form(broad("poisson"))
    flat, narrow = (np.asfortranarray(share * np.eye(BROAD)) for share in (1e-6, 20.0))
    assert sums._step_roughly(form, np.zeros(BROAD), flat) is None  # e^{s²/2} overflows
    assert sums._step_roughly(form, np.zeros(BROAD), -narrow) is None
    assert sums._step_roughly(form, np.zeros(BROAD), narrow).bound > sums.evaluate(form, np.zeros(BROAD), narrow).bound


def test_stand_ins_are_those_of_the_gaussian_that_is_asked_for():
    form, precision = sum_form(broad()), np.asfortranarray(20.0 * np.eye(BROAD))
    place, factor = sums.evaluate(form, np.zeros(BROAD), precision).place, cholesky(precision).factor
    known, other = form.stand_ins(place.m, factor), form.stand_ins(place.m + 1.0, factor)
    assert not np.allclose(other.gamma, known.gamma, rtol=1e-3)
    form.known.clear()
    assert form.stand_ins(place.m, factor).gamma == pytest.approx(known.gamma, rel=1e-12)


def test_a_hard_fit_falls_back_on_sites():
    x = np.linspace(-2.0, 2.0, TALL)[:, None]
    model = LatentLinearModel([GaussianFactor(cov=1e6), SiteFactor(x, potentials.Logit((x[:, 0] > 0.0).astype(float)))])
    auto, sites = infer(model, "gkl"), infer(model, engines.GaussianKL(algorithm="sites"))
    assert auto.converged
    assert auto.log_evidence == pytest.approx(sites.log_evidence, rel=1e-9)
    assert "steps by sums" in auto.message


def test_what_is_tall():
    tall = in_memory("logit")
    assert isinstance(choose_algorithm("auto", tall), BySumsFirst)
    assert isinstance(choose_algorithm("sites", tall), BySites)
    site = tall.sites[0]
    short = SiteFactor(X[1:], site.potential.select(slice(1, None)))
    heavy = SiteFactor(X, potentials.StudentT(3.0, ETA))
    measured = GaussianFactor(np.zeros(2), 1.0, H=np.ones((2, D)))
    for factors in ([PRIOR, short], [PRIOR, heavy], [PRIOR, measured, site], [site]):
        assert isinstance(choose_algorithm("auto", LatentLinearModel(factors)), BySites)


def test_a_warm_start_and_another_posterior():
    model = in_memory("poisson")
    first = infer(model, "gkl")
    assert infer(model, "gkl", start=first).n_iter == 1
    for engine in ("laplace", "map", "ep"):
        same(infer(model, SUMS, start=infer(model, engine)), first, 1e-5)
    with pytest.raises(ValueError, match="start has dimension 2, but the model has 3"):
        infer(model, "gkl", start=infer(LatentLinearModel([GaussianFactor(dim=2)]), "gkl"))


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_a_checkpoint_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_room, "Checkpoint", partial(Checkpoint, every=0.0))
    model, file = in_memory("logit"), tmp_path / "state"
    whole = infer(model, engines.GaussianKL(tol=1e-9))
    infer(model, engines.GaussianKL(tol=1e-9, max_iter=2), checkpoint=file)
    resumed = infer(model, engines.GaussianKL(tol=1e-9), checkpoint=file)
    assert np.array_equal(resumed.trace, whole.trace)
    assert np.array_equal(resumed.mean, whole.mean)
    assert all(f"state_place.{name}".encode() in file.read_bytes() for name in SumPlace._fields)


def test_words_without_a_meaning_are_refused():
    with pytest.raises(ValueError, match="algorithm must be one of 'auto', 'sites', 'sums', got 'rows'"):
        engines.GaussianKL(algorithm="rows")
    with pytest.raises(ValueError, match="algorithm='sums' has no meaning for covariance='diagonal'"):
        engines.GaussianKL("diagonal", algorithm="sums")
    with pytest.raises(ValueError, match="algorithm='sums' needs a factor on w itself"):
        infer(LatentLinearModel([SiteFactor(X, potentials.Gaussian(ETA, 1.0))]), SUMS)


def test_a_start_with_another_prior_keeps_what_the_sites_say() -> None:
    # Gaussian sites are the same stand-ins under any prior, so that the start is the posterior itself
    rng = np.random.default_rng(3)
    X = rng.standard_normal((90, 2))
    y = X @ [1.0, -2.0] + 0.5 * rng.standard_normal(90)

    def model(scale: float) -> LatentLinearModel:
        prior = GaussianFactor(scale * np.array([0.3, -0.1]), scale**2 * np.array([[1.0, 0.4], [0.4, 2.0]]))
        return LatentLinearModel([prior, SiteFactor(X, potentials.Gaussian(y, 0.5))])

    form = sum_form(model(0.05))
    assert form is not None
    first = sums.first_place(form, True, infer(model(3.0), "exact"))
    assert first is not None
    assert first.gradient < 1e-8
    assert first.bound == pytest.approx(infer(model(0.05), "exact").log_evidence, abs=1e-9)
