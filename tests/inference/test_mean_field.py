import numpy as np
import pytest
from scipy import sparse

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import GaussianKL, MeanField
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.laplace import Laplace
from latlin.potentials.logit import Logit
from latlin.potentials.poisson import Poisson
from latlin.potentials.probit import Probit
from latlin.potentials.step import Step
from latlin.potentials.student_t import StudentT
from reference import brute_force

COV = np.array([[1.0, 0.6], [0.6, 1.5]])
MU = np.array([0.3, -0.2])
POTENTIALS = {
    "laplace": Laplace([2.0, -1.0], 0.5),
    "logit": Logit([1, 0]),
    "step": Step([1, 0], 0.05),
    "student t": StudentT(2.0, [1.0, -2.0], 0.5),
    "poisson": Poisson([3, 0]),
}


def pair(potential, **options):
    return LatentLinearModel([GaussianFactor(MU, COV), SiteFactor(None, potential, **options)])


def on_a_grid(potential, sweeps=60):
    """Mean field for two coordinates with factors on grids: (bound, means, variances)."""
    line = np.linspace(-9.0, 9.0, 60001) + 1e-4 * np.sqrt(2)
    step = line[1] - line[0]
    inverse = np.linalg.inv(COV)
    psi = potential.log_density(np.stack([line, line], axis=1))
    mean, logs = MU.copy(), [None, None]
    for _ in range(sweeps):
        for d in (0, 1):
            other = 1 - d
            # ⟨log joint⟩ over the other factor, up to a constant
            pull = inverse[d, d] * MU[d] - inverse[d, other] * (mean[other] - MU[other])
            log_q = psi[:, d] - 0.5 * inverse[d, d] * line**2 + pull * line
            log_q -= log_q.max()
            log_q -= np.log(np.exp(log_q).sum() * step)
            logs[d] = log_q
            mean[d] = (np.exp(log_q) * line).sum() * step
    p = [np.exp(log_q) * step for log_q in logs]
    variance = np.array([(p[d] * (line - mean[d]) ** 2).sum() for d in (0, 1)])
    square = (mean - MU) @ inverse @ (mean - MU) + np.diag(inverse) @ variance
    gaussian = -0.5 * np.linalg.slogdet(2 * np.pi * COV)[1] - 0.5 * square
    bound = gaussian + sum((p[d] * (psi[:, d] - logs[d])).sum() for d in (0, 1))
    return bound, mean, variance


@pytest.mark.parametrize("name", POTENTIALS)
def test_free_form_factors_agree_with_factors_on_grids(name):
    post = infer(pair(POTENTIALS[name]), "mean-field")
    bound, mean, variance = on_a_grid(POTENTIALS[name])
    # sums on the grid resolve a jump to 3e-4 of its width
    loose = 3e-4 if name == "step" else 1e-6
    assert post.converged
    assert post.evidence_kind == "lower bound"
    assert post.log_evidence == pytest.approx(bound, abs=loose)
    np.testing.assert_allclose(post.mean, mean, atol=loose)
    np.testing.assert_allclose(post.variance, variance, atol=loose)
    np.testing.assert_array_equal(post.covariance(), np.diag(post.variance))


@pytest.mark.parametrize("name", POTENTIALS)
def test_below_the_evidence_and_above_factorised_gaussians(name):
    model = pair(POTENTIALS[name])
    post = infer(model, "mean-field")
    diagonal = infer(model, GaussianKL(covariance="diagonal"))
    assert diagonal.log_evidence <= post.log_evidence + 1e-8
    assert post.log_evidence <= brute_force(model, infer(model, "gkl"))[0] + 1e-8
    assert np.diff(post.trace).min(initial=0.0) > -1e-9


def test_independent_posteriors_are_exact():
    model = LatentLinearModel([GaussianFactor(0.5, [1.0, 4.0]), SiteFactor(np.diag([2.0, -0.7]), Probit([1, 1]))])
    post = infer(model, "mean-field")
    assert post.evidence_kind == "exact"
    assert post.log_evidence == pytest.approx(infer(model, "ep").log_evidence, abs=1e-10)
    log_z, mean, cov = brute_force(model, infer(model, "gkl"))
    assert post.log_evidence == pytest.approx(log_z, abs=1e-9)
    np.testing.assert_allclose(post.mean, mean, atol=1e-8)
    np.testing.assert_allclose(post.variance, np.diag(cov), atol=1e-8)


def test_gaussian_sites_lose_only_the_correlations():
    model = pair(Gaussian([1.0, -1.0], 0.8))
    post = infer(model, "mean-field")
    precision = np.linalg.inv(COV) + np.eye(2) / 0.64
    lost = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    exact = infer(model, "gkl")
    assert post.log_evidence == pytest.approx(exact.log_evidence - lost, abs=1e-10)
    np.testing.assert_allclose(post.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(post.variance, 1 / np.diag(precision), atol=1e-10)


def test_scaled_permutations_are_coordinates():
    rng = np.random.default_rng(4)
    root = rng.standard_normal((4, 4))
    cov, mu = root @ root.T + np.eye(4), rng.standard_normal(4)
    order, scale = np.array([2, 0, 3, 1]), np.array([1.5, -2.0, 0.5, -1.0])
    rows = np.zeros((4, 4))
    rows[np.arange(4), order] = scale
    potential = Laplace([1.0, -1.0, 0.0, 2.0], 0.6)
    post = infer(LatentLinearModel([GaussianFactor(mu, cov), SiteFactor(rows, potential)]), "mean-field")
    # x = Hw has this Gaussian, and its own coordinates for sites
    same = infer(
        LatentLinearModel([GaussianFactor(rows @ mu, rows @ cov @ rows.T), SiteFactor(None, potential)]), "mean-field"
    )
    assert post.log_evidence == pytest.approx(same.log_evidence, abs=1e-8)
    np.testing.assert_allclose(rows @ post.mean, same.mean, atol=1e-6)
    np.testing.assert_allclose(rows**2 @ post.variance, same.variance, atol=1e-6)
    as_csr = LatentLinearModel([GaussianFactor(mu, cov), SiteFactor(sparse.csr_array(rows), potential)])
    assert infer(as_csr, "mean-field").log_evidence == pytest.approx(post.log_evidence, abs=1e-10)


def sparse_regression():
    """Measurements, a sparse prior on some coordinates, nothing but the measurements on the others."""
    rng = np.random.default_rng(6)
    design = rng.standard_normal((8, 3))
    measured = GaussianFactor(design @ [1.0, 0.0, -2.0], 0.25, H=design)
    return LatentLinearModel([measured, SiteFactor(np.eye(3)[:2], Laplace(0.0, 0.5), offset=[0.1, 0.0], weight=[1, 2])])


def test_coordinates_without_a_site():
    model = sparse_regression()
    post = infer(model, "mean-field")
    assert post.converged
    assert infer(model, GaussianKL(covariance="diagonal")).log_evidence <= post.log_evidence + 1e-8
    assert post.log_evidence <= brute_force(model, infer(model, "gkl"))[0]


def test_the_density_is_what_it_says():
    for model in (sparse_regression(), pair(StudentT(2.0, [1.0, -2.0], 0.5))):
        post = infer(model, "mean-field")
        draws = post.sample(40000, random_state=0)
        np.testing.assert_allclose(draws.mean(axis=0), post.mean, atol=0.03)
        np.testing.assert_allclose(draws.var(axis=0), post.variance, rtol=0.05)
        assert np.array_equal(draws[:5], post.sample(40000, random_state=0)[:5])
        # E_q[1/q on a box] = volume
        half = 3 * np.sqrt(post.variance)
        inside = np.all(np.abs(draws - post.mean) < half, axis=1)
        volume = np.mean(np.where(inside, np.exp(-post.logpdf(draws)), 0.0))
        assert volume == pytest.approx(np.prod(2 * half), rel=0.2)
        rows = np.random.default_rng(0).standard_normal((3, model.dim))
        projected = post.project(rows)
        np.testing.assert_allclose(projected.variance, rows**2 @ post.variance)
        assert post.logpdf(post.mean) == post.logpdf(post.mean[None])[0]


def test_logpdf_is_normalised():
    model = LatentLinearModel([GaussianFactor(0.4, 2.0), SiteFactor(np.array([[-1.5]]), Laplace(1.0, 0.3))])
    post = infer(model, "mean-field")
    line = np.linspace(-12, 12, 200001)
    density = np.exp(post.logpdf(line[:, None]))
    assert np.trapezoid(density, line) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(density * line, line) == pytest.approx(post.mean[0], abs=1e-6)


def test_sites_on_projections_get_gaussian_factors():
    rng = np.random.default_rng(0)
    model = LatentLinearModel(
        [GaussianFactor(), SiteFactor(rng.standard_normal((20, 3)), Logit(rng.integers(0, 2, 20)))]
    )
    post = infer(model, "mean-field")
    diagonal = infer(model, GaussianKL(covariance="diagonal"))
    assert post.log_evidence == pytest.approx(diagonal.log_evidence, abs=1e-9)
    assert post.engine == "mean-field"
    assert "factorised Gaussian KL" in post.message


def test_the_tolerance_holds_on_projections_too():
    rng = np.random.default_rng(0)
    sites = SiteFactor(rng.standard_normal((20, 3)), Logit(rng.integers(0, 2, 20)))
    rough, fine = (infer(LatentLinearModel([GaussianFactor(), sites]), MeanField(tol=tol)) for tol in (1e-2, 1e-9))
    assert rough.n_iter < fine.n_iter
    assert fine.log_evidence - rough.log_evidence > 1e-9


def test_start_checkpoint_and_warning(tmp_path):
    model = sparse_regression()
    cold = infer(model, "mean-field")
    warm = infer(model, "mean-field", start=cold)
    assert warm.n_iter < cold.n_iter
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-9)
    with pytest.warns(ConvergenceWarning, match="keeps the correlations"):
        infer(model, MeanField(max_iter=2), checkpoint=tmp_path / "a.npz")
    assert infer(model, "mean-field", checkpoint=tmp_path / "a.npz").n_iter == cold.n_iter


def test_a_coordinate_without_a_gaussian_is_refused():
    model = LatentLinearModel([GaussianFactor(1.0, 1.0, H=np.eye(3)[:2]), SiteFactor(None, Laplace())])
    with pytest.raises(ValueError, match="needs a Gaussian factor on every coordinate, and 2 has none"):
        infer(model, "mean-field")
