"""Improper posteriors are refused before they are fitted; proper ones are not."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from scipy.stats import multivariate_normal

from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.inference import propriety
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.propriety import flat_direction
from potential_table import TABLE

ENGINES = ["gkl", "lvb", "map", "laplace", "ep", "mean-field", "ai-kl", "auto"]


def model(*factors):
    return LatentLinearModel(list(factors))


X = np.array([[1.0, 2.0], [0.5, -1.0], [-0.3, 1.5], [2.0, 0.1]])
APART = X @ [1.0, 0.5] > 0.4
MIXED = np.array([1, 0, 0, 1, 0, 1, 1, 0])

IMPROPER = {
    "one logit": model(SiteFactor([[1.0]], potentials.Logit([1]))),
    "one probit": model(SiteFactor([[-1.0]], potentials.Probit([1]))),
    "separable": model(SiteFactor(X, potentials.Logit(APART))),
    "a plane through points": model(SiteFactor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], potentials.Logit([1, 1, 1]))),
    "thin prior": model(GaussianFactor(H=[[1.0, 0.0]]), SiteFactor([[0.0, 1.0]], potentials.Logit([1]))),
    "nothing on a coordinate": model(SiteFactor([[1.0, 1.0]], potentials.Laplace([0.0]))),
    "thin alone": model(GaussianFactor(H=[[1.0, 1.0]])),
    "counts of zero": model(SiteFactor([[1.0]], potentials.Poisson([0.0]))),
    "weight zero": model(SiteFactor([[1.0]], potentials.Laplace([0.0]), weight=[0.0])),
    "extreme class": model(SiteFactor([[1.0]], potentials.Ordinal([2], [-1.0, 1.0]))),
    "sparse": model(SiteFactor(sparse.csr_array(X), potentials.Logit(APART))),
    "operator": model(SiteFactor(aslinearoperator(X), potentials.Logit(APART))),
}
STEPS = sparse.diags_array([-np.ones(3), np.ones(3)], offsets=[0, 1], shape=(3, 4))
WALK = GaussianFactor(precision=STEPS.T @ STEPS, rank=3)
FIRST = SiteFactor(np.eye(4)[:1], potentials.Logit([1]))
IMPROPER["walk"] = model(WALK, FIRST)
PROPER = {
    "walk": model(WALK, SiteFactor(np.eye(4), potentials.Logit([1, 0, 1, 1]))),
    "tied walk": LatentLinearModel([WALK, FIRST], constraints=[Constraint(np.ones(4))]),
    "prior": model(GaussianFactor(dim=2), SiteFactor(X, potentials.Logit(APART))),
    "both classes": model(SiteFactor(np.concatenate([X, X]), potentials.Logit(MIXED))),
    "one of each": model(SiteFactor([[1.0], [1.0]], potentials.Logit([0, 1]))),
    "counts": model(SiteFactor([[1.0]], potentials.Poisson([3.0]))),
    "thin prior and sparse sites": model(
        GaussianFactor(H=[[1.0, 0.0]]), SiteFactor(None, potentials.Laplace(np.zeros(2)))
    ),
    "middle class": model(SiteFactor([[1.0]], potentials.Ordinal([1], [-1.0, 1.0]))),
    "rows that span": model(GaussianFactor(H=X, mean=np.ones(4)), SiteFactor(X, potentials.Logit(APART))),
}


@pytest.mark.parametrize("name", IMPROPER)
def test_a_direction_is_found(name):
    found = flat_direction(IMPROPER[name])
    assert found is not None
    if name == "separable":
        assert np.all(np.where(APART, 1.0, -1.0) * (X @ found) >= -1e-9)


@pytest.mark.parametrize("name", PROPER)
def test_none_is_found_in_a_proper_one(name):
    if name != "prior":
        assert flat_direction(PROPER[name]) is None
    assert infer(PROPER[name], "map").converged


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["one logit", "one probit", "separable", "thin prior"])
def test_no_engine_fits_an_improper_one(name, engine):
    with pytest.raises(ValueError, match="improper"):
        infer(IMPROPER[name], engine)


@pytest.mark.parametrize("seed", range(8))
def test_the_verdict_is_that_of_the_likelihood_along_many_directions(seed):
    """Brute force in two dimensions: a direction without any falling site is one of a fine circle, or there is none."""
    rng = np.random.default_rng(seed)
    rows, y = rng.standard_normal((4, 2)), rng.integers(0, 2, 4)
    angle = np.linspace(0.0, 2 * np.pi, 20_001)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    separable = bool(np.any(np.all(np.where(y > 0, 1.0, -1.0) * (circle @ rows.T) >= 0.0, axis=1)))
    assert (flat_direction(model(SiteFactor(rows, potentials.Logit(y)))) is not None) == separable


@dataclass(frozen=True)
class Classes:
    """Rows with classes, or with numbers, become sites."""

    family: type

    def __call__(self, block):
        return Observed(block.X, self.family(block.y), block.weight, block.offset)

    def kind(self):
        return self.family(np.zeros(()))


def in_blocks(own, rows, y, family=potentials.Logit, weight=None):
    return BlockModel(model(own), LocalBlocks.of(rows, y, weight, rows=2), Classes(family))


RISING = SiteFactor(None, potentials.Logit(np.ones(2)))
UP = np.array([[1.0, 0.2], [0.5, 1.0], [0.1, 1.5], [2.0, 0.1], [0.0, 0.0]])
ONES, ZEROS = np.ones(5), np.zeros(5)
IMPROPER_BLOCKS = {
    "one logit": in_blocks(SiteFactor(None, potentials.Logit([1])), np.ones((1, 1)), np.ones(1)),
    "one probit": in_blocks(SiteFactor(None, potentials.Probit([1])), np.ones((1, 1)), np.ones(1), potentials.Probit),
    "separable": in_blocks(RISING, UP, ONES),
    "sparse": in_blocks(RISING, sparse.csr_array(UP), ONES),
    "rows on one line": in_blocks(RISING, np.outer(ONES, [1.0, -1.0]), ZEROS, potentials.Laplace),
    "weight zero": in_blocks(RISING, -UP, ONES, weight=ZEROS),
    "walk": in_blocks(WALK, np.eye(4)[:3], np.ones(3)),
}
PROPER_BLOCKS = {
    "classes of both kinds": in_blocks(RISING, np.concatenate([UP, UP]), np.concatenate([ONES, ZEROS])),
    "sparse": in_blocks(RISING, sparse.csr_array(-UP), ONES),
    "rows that span": in_blocks(RISING, UP, ZEROS, potentials.Laplace),
    "Laplace prior": in_blocks(SiteFactor(None, potentials.Laplace(np.zeros(2))), UP, ONES),
    "walk": in_blocks(WALK, np.eye(4)[:3], [1, 0, 1]),
}


@pytest.mark.parametrize("engine", ["gkl", "map", "laplace", "auto"])
@pytest.mark.parametrize("name", IMPROPER_BLOCKS)
def test_no_engine_fits_improper_blocks(name, engine):
    with pytest.raises(ValueError, match="improper"):
        infer(IMPROPER_BLOCKS[name], engine)


@pytest.mark.parametrize("name", PROPER_BLOCKS)
def test_proper_blocks_are_fitted(name):
    assert flat_direction(PROPER_BLOCKS[name]) is None
    assert infer(PROPER_BLOCKS[name], "map").converged


@pytest.mark.parametrize("seed", range(8))
def test_the_verdict_on_blocks_is_that_in_memory(seed, monkeypatch):
    """Nearly separable classes, of which a block gives up one row at a time."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, 4))
    y = (rows @ rng.standard_normal(4) + 0.8 * (seed % 2) * rng.standard_normal(60) > 0).astype(float)
    own = SiteFactor(None, potentials.Logit(np.ones(4)), weight=np.zeros(4))
    opposed = propriety._opposed
    monkeypatch.setattr(propriety, "_opposed", lambda *shared: opposed(*shared[:-1], 1))
    found = flat_direction(in_blocks(own, rows, y))
    assert (found is None) == (seed % 2 == 1)
    assert (found is None) == (flat_direction(model(own, SiteFactor(rows, potentials.Logit(y)))) is None)
    if found is not None:
        assert np.all(np.where(y > 0, 1.0, -1.0) * (rows @ found) >= -1e-6)


#: where a site that is flat somewhere has not begun to fall
FAR = 1e100


def _is_flat(row):
    """Whether x·φ(x) stays up at an end, so that the integral of φ diverges."""
    with np.errstate(all="ignore"):
        ends = [np.ravel(row.make().log_density([side * FAR]))[0] + np.log(FAR) for side in (1.0, -1.0)]
    return max(ends) > -5.0


FLAT = {row.name: row.make for row in TABLE if _is_flat(row)}


def test_the_families_with_flat_sides_are_known():
    assert {"logit_one", "step_zero", "weibull_left", "interval_open", "hurdle_poisson", "tweedie_zero"} <= set(FLAT)
    assert not {"cauchy_unit", "horseshoe_unit", "poisson_many", "beta_binomial_some"} & set(FLAT)


@pytest.mark.parametrize("engine", [*ENGINES, "t-kl"])
@pytest.mark.parametrize("name", FLAT)
def test_no_engine_converges_on_a_flat_side_of_any_family(name, engine):
    site = FLAT[name]()
    both = site.select([0, 0]) if any(np.ndim(getattr(site, array)) for array in site.arrays) else site
    for improper in (
        model(SiteFactor([[1.0]], site)),
        model(SiteFactor([[1.0, 0.5], [0.5, 1.0]], both)),
        model(GaussianFactor(H=[[1.0, 0.0]]), SiteFactor([[0.0, 1.0]], site)),
    ):
        with pytest.raises(ValueError):
            infer(improper, engine)


def test_overlapping_gaussian_factors_are_named():
    site = SiteFactor([[1.0, 0.5]], potentials.Logit([1]))
    double = infer(model(GaussianFactor(dim=2), GaussianFactor(cov=2.0, dim=2), site), "gkl")
    assert "not normalised" in double.message
    factors = [GaussianFactor(dim=2), GaussianFactor(cov=2.0, dim=2), site]
    normal = infer(LatentLinearModel(factors, normalise_prior=True), "gkl")
    assert "not normalised" not in normal.message
    single = infer(model(GaussianFactor(dim=2), GaussianFactor(1.0, H=[[1.0, 1.0]]), site), "gkl")
    assert "not normalised" not in single.message


STEPS = np.diff(np.eye(3), axis=0)
RING = np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0]])


def penalised(width):
    """Priors whose factors overlap: steps beside a Gaussian on w, two penalties, an intrinsic one, more rows than w."""
    walk = GaussianFactor(precision=STEPS.T @ STEPS / width**2, rank=2, H=np.eye(3))
    return {
        "steps beside a Gaussian": (GaussianFactor(cov=4.0, dim=3), GaussianFactor(cov=width**2, H=STEPS)),
        "one row beside a Gaussian": (GaussianFactor(cov=4.0, dim=3), GaussianFactor(cov=width**2, H=STEPS[:1])),
        "two projections": (GaussianFactor(cov=4.0, H=np.eye(3)), GaussianFactor(cov=width**2, H=STEPS)),
        "intrinsic beside a Gaussian": (GaussianFactor(0.5, cov=4.0, dim=3), walk),
        "more rows than numbers": (GaussianFactor(cov=width**2, H=RING),),
    }


@pytest.mark.parametrize("name", penalised(1.0))
def test_overlapping_penalties_are_named_and_normalised(name):
    site = SiteFactor(None, potentials.Gaussian([0.3, 1.0, 0.4], 0.7))
    for width in (0.5, 2.0):
        factors = penalised(width)[name]
        assert "not normalised" in infer(model(*factors, site), "gkl").message
        whole = infer(LatentLinearModel([*factors, site], normalise_prior=True))
        assert "not normalised" not in whole.message
        # the prior N(m, S) by hand: S⁻¹ = Σ HᵀQH, m = S Σ HᵀQ mean, and the evidence N(y | m, S + 0.7² I)
        precision, linear = np.zeros((3, 3)), np.zeros(3)
        for factor in factors:
            H = np.eye(3) if factor.H is None else np.asarray(factor.H @ np.eye(3))
            Q = factor.precision.toarray() if factor.by_precision else np.eye(len(H)) / factor.cov
            precision, linear = precision + H.T @ Q @ H, linear + H.T @ Q @ np.broadcast_to(factor.mean, len(H))
        S = np.linalg.inv(precision)
        expected = multivariate_normal(S @ linear, S + 0.49 * np.eye(3)).logpdf([0.3, 1.0, 0.4])
        assert whole.log_evidence == pytest.approx(expected, abs=1e-8)


def test_factors_that_do_not_overlap_get_no_message():
    site = SiteFactor(None, potentials.Logit([1, 0, 1]))
    level = GaussianFactor(cov=9.0, H=np.ones((1, 3)))
    apart = (GaussianFactor(cov=1.0, H=slice(0, 1), dim=3), GaussianFactor(cov=4.0, H=slice(1, 3), dim=3))
    data = (GaussianFactor(cov=4.0, dim=3), GaussianFactor([0.1, -0.2], H=STEPS))
    for factors in ((level, GaussianFactor(H=STEPS)), apart, data):
        assert "not normalised" not in infer(model(*factors, site), "gkl").message


def test_models_too_large_for_the_search_are_not_made_dense(monkeypatch):
    monkeypatch.setattr(propriety, "LARGEST", 100)
    monkeypatch.setattr(propriety, "_dense", lambda H, dim: pytest.fail("a matrix was made dense"))
    steps = sparse.csr_array(np.diff(np.eye(8), axis=0))
    prior = GaussianFactor(precision=sparse.csr_array(steps.T @ steps), rank=7)
    small = SiteFactor(sparse.csr_array(np.eye(8)[:3]), potentials.Poisson([1.0, 2.0, 3.0]))
    # 3 × 8 and 8 × 8 numbers alone are few enough, all together are not
    assert flat_direction(LatentLinearModel([prior, small, small])) is None
