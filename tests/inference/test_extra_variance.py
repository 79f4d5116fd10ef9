"""Sites with an extra variance: exp⟨log φ(hᵀw + ε)⟩ over ε ~ N(0, v), by brute force and by blocks."""

import numpy as np
import pytest
from scipy import integrate, sparse
from scipy.special import log_expit
from scipy.stats import norm

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.forms.projections import stacked_sites

H = np.array([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9], [0.1, 0.5]])
V = np.array([0.7, 0.0, 2.0, 0.3])
LABELS = np.array([1.0, 0.0, 1.0, 1.0])


def model_of(potential, v=V, weight=None, offset=None):
    return LatentLinearModel([GaussianFactor(0.3, 2.0, dim=2), SiteFactor(H, potential, weight, offset, v)])


def smoothed_logit(x, sign, v):
    """⟨log σ(sign(x + ε))⟩ over ε ~ N(0, v), by quadrature."""
    if v == 0.0:
        return log_expit(sign * x)
    spread = np.sqrt(v)
    return integrate.quad(lambda e: log_expit(sign * (x + e)) * norm.pdf(e, scale=spread), -12 * spread, 12 * spread)[0]


def test_sites_are_expectations_of_the_potential():

    sites = stacked_sites(model_of(potentials.Logit(LABELS), weight=[1.0, 2.0, 0.5, 0.0], offset=0.1))
    x = np.array([0.4, -1.0, 2.0, 0.0])
    expected = [
        w * smoothed_logit(t + 0.1, 2 * y - 1, v) for w, t, y, v in zip(sites.weight, x, LABELS, V, strict=True)
    ]
    np.testing.assert_allclose(sites.log_density(x), expected, atol=1e-9)
    np.testing.assert_allclose(sites.log_density(np.stack([x, x])), [expected, expected], atol=1e-9)
    h = 1e-4
    first, second, third = sites.derivatives(x)
    up, down = sites.derivatives(x + h), sites.derivatives(x - h)
    np.testing.assert_allclose(first, (sites.log_density(x + h) - sites.log_density(x - h)) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(second, (up.first - down.first) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(third, (up.second - down.second) / (2 * h), atol=1e-5)
    np.testing.assert_array_equal(sites.part(slice(1, 3)).extra, V[1:3])


def test_draws_far_out_have_no_density_instead_of_an_error():
    """A diagnosis draws from wide proposals, where a Poisson rate may be too large for a number."""

    sites = stacked_sites(model_of(potentials.Poisson([1, 0, 3, 2]), weight=[1.0, 2.0, 0.5, 1.0]))
    x = np.array([[0.4, -1.0, 2.0, 0.0], [0.1, 900.0, 0.0, 0.2], [0.0, 0.3, 0.1, 0.2]])
    found = sites.log_density_sums(x)
    assert found[1] == -np.inf
    np.testing.assert_allclose(found[[0, 2]], sites.log_density(x[[0, 2]]).sum(axis=1), rtol=1e-14)


def test_gaussian_kl_is_below_the_brute_force_evidence_and_near():
    """∫ N(w) ∏ exp⟨log φ⟩ dw on a grid."""
    model = model_of(potentials.Logit(LABELS))
    post = infer(model, "gkl")
    grid = np.linspace(-9.0, 9.0, 161)
    w = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)

    joint = norm.logpdf(w, 0.3, np.sqrt(2.0)).sum(axis=1) + stacked_sites(model).log_density(w @ H.T).sum(axis=1)
    log_z = np.log(np.exp(joint).sum() * (grid[1] - grid[0]) ** 2)
    assert post.log_evidence < log_z + 1e-8
    assert post.log_evidence == pytest.approx(log_z, abs=0.02)
    assert infer(model, "laplace").log_evidence == pytest.approx(log_z, abs=0.05)
    assert post.diagnose(random_state=0).log_evidence == pytest.approx(log_z, abs=0.02)


def test_gaussian_sites_lose_half_the_variance_over_the_noise():
    """⟨log N(y | x + ε, σ²)⟩ = log N(y | x, σ²) − v/(2σ²): the collapsed bound of Titsias (2009)."""
    potential = potentials.Gaussian([0.4, -1.0, 0.2, 1.5], 0.5)
    plain, extra = infer(model_of(potential, 0.0), "exact"), infer(model_of(potential), "exact")
    assert extra.log_evidence == pytest.approx(plain.log_evidence - V.sum() / (2 * 0.25), abs=1e-10)
    np.testing.assert_allclose(extra.mean, plain.mean, atol=1e-12)


@pytest.mark.parametrize("scale", [0.5, [0.5, 0.6, 0.7, 0.8]])
def test_a_sparse_precision_keeps_what_gaussian_sites_lose(scale):
    """The same by sums over the rows, which serve every noise of one scale, and without them."""
    weight, prior = np.array([1.0, 2.0, 0.5, 1.0]), GaussianFactor(0.3, precision=sparse.eye_array(2) / 2.0)
    site = SiteFactor(sparse.csr_array(H), potentials.Gaussian([0.4, -1.0, 0.2, 1.5], scale), weight, None, V)
    found = infer(LatentLinearModel([prior, site]), "exact")
    same = infer(model_of(site.potential, weight=weight), "exact")
    assert found.log_evidence == pytest.approx(same.log_evidence, abs=1e-10)
    assert found.log_evidence == pytest.approx(infer(found.model, "gkl").log_evidence, abs=1e-8)
    slope = evidence_gradient(found).sites[0]["scale"]
    np.testing.assert_allclose(slope, evidence_gradient(same).sites[0]["scale"], atol=1e-8)


def test_an_extra_variance_lowers_the_evidence_of_concave_sites():
    bounds = [infer(model_of(potentials.Poisson([1, 0, 3, 2]), v), "gkl").log_evidence for v in (None, 0.1, 1.0)]
    assert bounds[0] > bounds[1] > bounds[2]


@pytest.mark.parametrize("algorithm", ["sites", "sums"])
@pytest.mark.parametrize(
    "potential",
    [potentials.Logit(LABELS), potentials.StudentT(4.0, [0.3, 1.0, -0.5, 2.0], 0.7)],
    ids=["logit", "student-t"],
)
def test_blocks_give_what_memory_gives(potential, algorithm):
    held = infer(model_of(potential), engines.GaussianKL(algorithm=algorithm, tol=1e-8))
    rows = np.column_stack([H, V, potential.observed])
    own = LatentLinearModel([GaussianFactor(0.3, 2.0, dim=2)])
    there = infer(BlockModel(own, LocalBlocks.of(rows, rows=3), Reading(potential)), engines.GaussianKL(tol=1e-8))
    assert there.log_evidence == pytest.approx(held.log_evidence, abs=1e-9)
    np.testing.assert_allclose(there.mean, held.mean, atol=1e-6)
    np.testing.assert_allclose(there.covariance(), held.covariance(), atol=1e-6)


class Reading:
    """Rows whose last two columns are the extra variance and the observation."""

    def __init__(self, template):
        self.template = template

    def kind(self):
        return self.template

    def __call__(self, block):
        return Observed(
            np.ascontiguousarray(block.X[:, :2]), self.template.observe(block.X[:, 3]), None, None, block.X[:, 2]
        )


def test_gradients_see_the_extra_variance():
    def fitted(scale):
        return infer(model_of(potentials.StudentT(4.0, [0.3, 1.0, -0.5, 2.0], scale)), engines.GaussianKL(tol=1e-9))

    h = 1e-4
    slope = evidence_gradient(fitted(0.7)).sites[0]["scale"].sum()
    assert slope == pytest.approx((fitted(0.7 + h).log_evidence - fitted(0.7 - h).log_evidence) / (2 * h), abs=1e-6)


def test_structured_covariances_take_it_too():
    full = infer(model_of(potentials.Logit(LABELS)), "gkl")
    diagonal = infer(model_of(potentials.Logit(LABELS)), engines.GaussianKL(covariance="diagonal"))
    banded = infer(model_of(potentials.Logit(LABELS)), engines.GaussianKL(covariance="banded", bandwidth=1))
    assert diagonal.log_evidence < full.log_evidence
    assert banded.log_evidence == pytest.approx(full.log_evidence, abs=1e-8)


@pytest.mark.parametrize("engine", ["ep", "lvb", "mean-field", "ai-kl", "t-kl"])
def test_engines_that_integrate_sites_refuse(engine):
    with pytest.raises(ValueError, match=f"engine '{engine}' cannot be used for a SiteFactor with extra_variance"):
        infer(model_of(potentials.Logit(LABELS)), engine)


def test_bad_extra_variances_are_named():
    with pytest.raises(ValueError, match="extra_variance must not be negative, got -1"):
        SiteFactor(H, potentials.Logit(LABELS), extra_variance=[-1.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="'extra_variance': 3"):
        SiteFactor(H, potentials.Logit(LABELS), extra_variance=np.ones(3))
    assert infer(model_of(potentials.Logit(LABELS)), "auto").engine == "gkl"
