"""What must not change the answer: order, signs, rotations, counting, storage, units."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import GaussianKL
from latlin.potentials import Laplace, Logit, Poisson, Probit, StudentT

rng = np.random.default_rng(5)
N, DIM = 40, 4
ROWS = rng.standard_normal((N, DIM))
LABELS = (rng.random(N) < 1 / (1 + np.exp(-ROWS @ [1.0, -2.0, 0.0, 0.5]))).astype(int)
REALS = ROWS @ [1.0, -2.0, 0.0, 0.5] + 0.3 * rng.standard_t(3, N)
FAMILIES = {
    "logit": Logit(LABELS),
    "probit": Probit(LABELS),
    "laplace": Laplace(REALS, 0.3),
    "student": StudentT(3.0, REALS, 0.3),
    "poisson": Poisson(rng.poisson(1.0, N)),
}
ENGINES = ["laplace", "gkl"]
CASES = [(e, f) for e in ENGINES for f in FAMILIES if (e, f) != ("laplace", "laplace")]


def fit(rows, potential, engine, cov=1.0, mean=0.0, **site):
    dim = rows.shape[1]
    return infer(LatentLinearModel([GaussianFactor(mean, cov, dim=dim), SiteFactor(rows, potential, **site)]), engine)


def assert_same(a, b, tol=1e-7):
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=tol)
    np.testing.assert_allclose(a.mean, b.mean, atol=10 * tol)
    np.testing.assert_allclose(a.covariance(), b.covariance(), atol=10 * tol)


@pytest.mark.parametrize(("engine", "family"), CASES)
def test_row_order(engine, family):
    order = rng.permutation(N)
    assert_same(fit(ROWS, FAMILIES[family], engine), fit(ROWS[order], FAMILIES[family].select(order), engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_flipped_labels_with_flipped_rows(engine):
    assert_same(fit(ROWS, Logit(LABELS), engine), fit(-ROWS, Logit(1 - LABELS), engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_flipped_response_flips_the_weights(engine):
    a, b = fit(ROWS, StudentT(3.0, REALS, 0.3), engine), fit(ROWS, StudentT(3.0, -REALS, 0.3), engine)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-7)
    np.testing.assert_allclose(a.mean, -b.mean, atol=1e-6)


@pytest.mark.parametrize(("engine", "family"), CASES)
def test_rotation_of_w(engine, family):
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    a, b = fit(ROWS, FAMILIES[family], engine), fit(ROWS @ turn, FAMILIES[family], engine)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-7)
    np.testing.assert_allclose(a.mean, turn @ b.mean, atol=1e-6)
    np.testing.assert_allclose(a.covariance(), turn @ b.covariance() @ turn.T, atol=1e-6)


@pytest.mark.parametrize(("engine", "family"), CASES)
def test_a_duplicated_row_is_a_site_counted_twice(engine, family):
    index = np.r_[np.arange(N), 3, 7]
    weight = np.ones(N)
    weight[[3, 7]] = 2.0
    potential = FAMILIES[family]
    assert_same(fit(ROWS[index], potential.select(index), engine), fit(ROWS, potential, engine, weight=weight))


@pytest.mark.parametrize(("engine", "family"), CASES)
def test_dense_sparse_and_operator(engine, family):
    rows = ROWS * (np.abs(ROWS) > 0.7)
    reference = fit(rows, FAMILIES[family], engine)
    assert_same(reference, fit(sparse.csr_array(rows), FAMILIES[family], engine))
    assert_same(reference, fit(sparse.coo_matrix(rows), FAMILIES[family], engine))
    assert_same(reference, fit(aslinearoperator(rows), FAMILIES[family], engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_offset_shifts_the_prior_mean(engine):
    shift = np.array([0.5, -1.0, 0.2, 0.0])
    a = fit(ROWS, Logit(LABELS), engine, offset=ROWS @ shift)
    b = fit(ROWS, Logit(LABELS), engine, mean=shift)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-7)
    np.testing.assert_allclose(a.mean + shift, b.mean, atol=1e-6)


@pytest.mark.parametrize(("engine", "family"), CASES)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_the_features(engine, family, scale):
    a, b = fit(ROWS, FAMILIES[family], engine), fit(ROWS * scale, FAMILIES[family], engine, cov=scale**-2.0)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-6)
    np.testing.assert_allclose(a.mean, b.mean * scale, atol=1e-6)
    np.testing.assert_allclose(a.variance, b.variance * scale**2, rtol=1e-6)


@pytest.mark.parametrize("engine", ["map", *ENGINES])
def test_absurdly_small_features_give_a_finite_answer(engine):
    post = fit(ROWS * 1e-150, Logit(LABELS), engine)
    np.testing.assert_allclose(post.mean, 0.0, atol=1e-100)
    assert engine == "map" or post.log_evidence == pytest.approx(N * np.log(0.5))


@pytest.mark.parametrize("engine", ["map", *ENGINES])
def test_absurdly_large_features_give_a_clear_error(engine):
    with pytest.raises(ValueError, match=r"at most 1e\+140 in size, got .*e\+150: change its units"):
        fit(ROWS * 1e150, Logit(LABELS), engine)


@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_sites_than_dimensions_is_the_same_problem(family):
    """The reduced form (N < D) against the plain one, made by adding sites of weight zero."""
    rows = rng.standard_normal((6, 9))
    potential = FAMILIES[family].select(np.arange(6))
    extra = np.concatenate([rows, rng.standard_normal((5, 9))])
    full = FAMILIES[family].select(np.r_[np.arange(6), np.arange(5)])
    weight = np.r_[np.ones(6), np.zeros(5)]
    assert_same(
        fit(rows, potential, "gkl", cov=0.8, mean=0.2), fit(extra, full, "gkl", cov=0.8, mean=0.2, weight=weight)
    )


def test_a_start_changes_the_way_not_the_end():
    model = LatentLinearModel([GaussianFactor(dim=DIM), SiteFactor(ROWS, Logit(LABELS))])
    near = LatentLinearModel([GaussianFactor(cov=1.1, dim=DIM), SiteFactor(ROWS, Logit(LABELS))])
    cold, warm = infer(model, "gkl"), infer(model, "gkl", start=infer(near, "laplace"))
    assert_same(cold, warm)
    two = infer(LatentLinearModel([GaussianFactor(dim=2), SiteFactor(ROWS[:, :2], Logit(LABELS))]), "laplace")
    with pytest.raises(ValueError, match="start has dimension 2"):
        infer(model, "gkl", start=two)


def test_checkpoints_of_an_engine_resume_to_the_same_numbers(tmp_path):
    model = LatentLinearModel([GaussianFactor(dim=DIM), SiteFactor(ROWS, Logit(LABELS))])
    whole = infer(model, GaussianKL())
    with pytest.warns(match="did not converge in 2 steps"):
        infer(model, GaussianKL(max_iter=2), checkpoint=tmp_path / "fit.npz")
    resumed = infer(model, GaussianKL(), checkpoint=tmp_path / "fit.npz")
    assert resumed.log_evidence == whole.log_evidence
    np.testing.assert_array_equal(resumed.trace, whole.trace)
    np.testing.assert_array_equal(resumed.mean, whole.mean)
    other = LatentLinearModel([GaussianFactor(dim=DIM), SiteFactor(ROWS, Logit(1 - LABELS))])
    with pytest.raises(ValueError, match="another model or engine"):
        infer(other, GaussianKL(), checkpoint=tmp_path / "fit.npz")
