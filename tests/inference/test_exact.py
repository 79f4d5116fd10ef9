"""The exact engine: what a Newton step finds, for every shape of a Gaussian model, in memory and in blocks."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from scipy.stats import multivariate_normal

from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.evidence.gradient import evidence_gradient

D = 4
rng = np.random.default_rng(8)
X = rng.standard_normal((12, D))
Y = X @ [1.0, -0.5, 0.2, 0.0] + 0.3 * rng.standard_normal(12)
NOISE = potentials.Gaussian(Y, 0.4)
FULL = GaussianFactor(0.1, np.eye(D) + 0.3)
WALK = sparse.csr_array(np.diff(np.eye(D), axis=0).T @ np.diff(np.eye(D), axis=0))
MODELS = {
    "dense": [GaussianFactor(0.2, 1.5, dim=D), SiteFactor(X, NOISE, 1.0, 0.1)],
    "full prior": [FULL, SiteFactor(X, NOISE)],
    "two priors": [FULL, GaussianFactor(cov=3.0), SiteFactor(X, NOISE)],
    "sparse": [GaussianFactor(cov=2.0), SiteFactor(sparse.csr_array(X * (X > 0.0)), NOISE)],
    "operator": [GaussianFactor(cov=2.0), SiteFactor(aslinearoperator(X), NOISE)],
    "few sites": [GaussianFactor(cov=2.0), SiteFactor(X[:2], potentials.Gaussian(Y[:2], 0.4))],
    "process": [FULL, SiteFactor(None, potentials.Gaussian(Y[:D], 0.4))],
    "measured": [FULL, GaussianFactor(0.3, 0.5, H=X[:2]), SiteFactor(X, NOISE)],
    "precision": [GaussianFactor(precision=sparse.csr_array(np.eye(D) + 0.2)), SiteFactor(X, NOISE)],
    "intrinsic": [GaussianFactor(precision=WALK, rank=D - 1), SiteFactor(X, NOISE)],
    "no prior": [SiteFactor(X, NOISE)],
    "no sites": [FULL],
    "weights": [GaussianFactor(cov=2.0), SiteFactor(X, NOISE, np.r_[np.zeros(3), np.full(9, 2.0)])],
}


@pytest.mark.parametrize("name", MODELS)
def test_a_newton_step_finds_the_same(name):
    model = LatentLinearModel(MODELS[name])
    exact, newton = infer(model, "exact"), infer(model, engines.Laplace(tol=1e-10))
    assert exact.evidence_kind == newton.evidence_kind == "exact"
    assert exact.log_evidence == pytest.approx(newton.log_evidence, abs=1e-9)
    np.testing.assert_allclose(exact.mean, newton.mean, atol=1e-9)
    np.testing.assert_allclose(exact.covariance(), newton.covariance(), atol=1e-9)


def test_constraints_hold_exactly():
    constraint = Constraint(np.ones((1, D)), np.array([0.5]))
    model = LatentLinearModel(MODELS["full prior"], constraints=[constraint])
    exact, newton = infer(model, "exact"), infer(model, engines.Laplace(tol=1e-10))
    assert exact.mean.sum() == pytest.approx(0.5, abs=1e-9)
    assert exact.log_evidence == pytest.approx(newton.log_evidence, abs=1e-9)


def test_the_evidence_is_that_of_the_observations():
    prior, _ = MODELS["full prior"]
    joint = multivariate_normal(X @ np.full(D, 0.1), X @ prior.cov @ X.T + 0.16 * np.eye(12))
    assert infer(LatentLinearModel(MODELS["full prior"]), "exact").log_evidence == pytest.approx(joint.logpdf(Y))


@dataclass(frozen=True)
class Reals:
    def __call__(self, block):
        return Observed(np.ascontiguousarray(block.X), potentials.Gaussian(block.y, 0.4), block.weight, block.offset)

    def kind(self):
        return potentials.Gaussian(0.0, 0.4)


def test_blocks_of_rows_give_the_same_in_one_pass():
    weight, offset = rng.random(12) + 0.5, 0.1 * rng.standard_normal(12)
    memory = infer(LatentLinearModel([FULL, SiteFactor(X, NOISE, weight, offset)]), "exact")
    blocks = BlockModel(LatentLinearModel([FULL]), LocalBlocks.of(X, Y, weight, offset, rows=5), Reals())
    found = infer(blocks, "exact")
    assert found.log_evidence == pytest.approx(memory.log_evidence, abs=1e-10)
    np.testing.assert_allclose(found.covariance(), memory.covariance(), atol=1e-12)
    slopes, reference = evidence_gradient(found), evidence_gradient(memory)
    np.testing.assert_allclose(slopes.gaussians[0].d_cov, reference.gaussians[0].d_cov, atol=1e-9)
    assert slopes.sites[-1]["scale"] == pytest.approx(reference.sites[-1]["scale"].sum(), abs=1e-9)


def test_other_sites_are_refused():
    model = LatentLinearModel([FULL, SiteFactor(X, potentials.Laplace(Y)), SiteFactor(X, NOISE)])
    with pytest.raises(ValueError, match="needs Gaussian noise, that is Gaussian sites, and Laplace sites are not"):
        infer(model, "exact")
