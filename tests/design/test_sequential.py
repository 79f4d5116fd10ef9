"""Sequential design: gains by brute force, the best directions, warm starts, and better than chance."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from latlin import engines, infer, potentials
from latlin.design import SequentialDesign, directions, finite_differences, wavelet_transform
from latlin.design.directions import covariance_operator, leading_directions

NOISE = 0.005


def designed(engine="gkl", dim=24, count=8, prior=None, filters=None, seed=0):
    rng = np.random.default_rng(seed)
    signal = rng.laplace(scale=0.2, size=dim)
    design = SequentialDesign(filters, prior or potentials.Laplace(scale=0.2), NOISE, engine=engine, dim=dim)
    M = rng.standard_normal((count, dim))
    M /= np.linalg.norm(M, axis=1, keepdims=True)
    return design.observe(M, M @ signal + np.sqrt(NOISE) * rng.standard_normal(count)), signal


ENGINES = [
    "gkl",
    "lvb",
    engines.ExpectationPropagation(power=0.9),
    engines.GaussianKL(covariance="chevron", rank=6),
    engines.GaussianKL(covariance="subspace", rank=6),
    engines.LocalBound(variances="lanczos", rank=10),
]


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_suggestions_are_the_leading_eigenvectors(engine):
    design, _ = designed(engine)
    S = design.posterior.covariance()
    values = np.linalg.eigvalsh(S)[::-1]
    rows = design.suggest(3)
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(np.diag(rows @ S @ rows.T), values[:3], rtol=1e-5)
    np.testing.assert_allclose(design.information_gain(rows), 0.5 * np.log1p(values[:3] / NOISE), rtol=1e-5)
    block = np.random.default_rng(1).standard_normal((24, 2))
    operator = covariance_operator(design.posterior.density)
    np.testing.assert_allclose(operator @ block, S @ block, atol=1e-10)
    np.testing.assert_allclose(operator @ block[:, 0], S @ block[:, 0], atol=1e-10)


def test_many_directions_are_found_by_products(monkeypatch):
    design, _ = designed()
    density = design.posterior.density
    monkeypatch.setattr(directions, "DENSE", 10)
    found = leading_directions(density, 3)
    values, vectors = np.linalg.eigh(density.covariance())
    np.testing.assert_allclose(np.abs(np.sum(found.T * vectors[:, :-4:-1], axis=0)), 1.0, atol=1e-8)
    np.testing.assert_allclose(np.diag(found @ density.covariance() @ found.T), values[:-4:-1], rtol=1e-9)


def test_information_gain_is_the_fall_of_entropy():
    design, _ = designed()
    S = design.posterior.covariance()
    M = np.random.default_rng(2).standard_normal((3, 24))
    after = np.linalg.inv(np.linalg.inv(S) + M.T @ M / NOISE)
    wanted = 0.5 * (np.linalg.slogdet(S)[1] - np.linalg.slogdet(after)[1])
    assert design.joint_information_gain(M) == pytest.approx(wanted, abs=1e-8)
    np.testing.assert_allclose(design.information_gain(M[:1]), design.joint_information_gain(M[:1]), atol=1e-10)


def test_candidates_are_chosen_one_given_the_other():
    design, _ = designed()
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((10, 24))
    rows[1] = rows[0] * 1.001
    chosen = design.suggest(3, candidates=rows)
    best, left = [], list(range(10))
    for _ in range(3):
        gains = [design.joint_information_gain(rows[[*best, n]]) for n in left]
        best.append(left.pop(int(np.argmax(gains))))
    np.testing.assert_allclose(chosen, rows[best])


def test_the_posterior_is_that_of_all_measurements_at_once():
    design, signal = designed(count=6)
    first = design.posterior
    M = design.suggest(2)
    design.observe(M[0], M[0] @ signal).observe(M[1], M[1] @ signal)
    assert design.measurements.shape == (8, 24)
    fresh = infer(design.model, "gkl")
    np.testing.assert_allclose(design.reconstruction, fresh.mean, atol=1e-5)
    np.testing.assert_allclose(design.uncertainty**2, fresh.variance, atol=1e-5)
    assert design.posterior is not first
    assert design.posterior is design.posterior


def test_design_beats_random_rows():
    """Equal numbers of measurements, same engine: designed rows leave smaller errors on average."""
    errors = np.zeros((6, 2))
    for seed in range(6):
        for j in range(2):
            design, signal = designed(dim=40, count=10, seed=seed)
            rng = np.random.default_rng(100 + seed)
            for _ in range(5):
                M = design.suggest(3) if j == 0 else rng.standard_normal((3, 40))
                M /= np.linalg.norm(M, axis=1, keepdims=True)
                design.observe(M, M @ signal + np.sqrt(NOISE) * rng.standard_normal(3))
            errors[seed, j] = np.linalg.norm(design.reconstruction - signal)
    designed_error, random_error = errors.mean(axis=0)
    assert designed_error < 0.9 * random_error


def test_an_image_with_two_kinds_of_filters():
    shape = (8, 8)
    filters = [finite_differences(shape), wavelet_transform(shape)]
    priors = [potentials.Laplace(scale=0.1), potentials.Laplace(scale=0.14)]
    design = SequentialDesign(filters, priors, NOISE, engine="lvb")
    image = np.outer(np.linspace(-1, 1, 8), np.ones(8)).ravel()
    for _ in range(4):
        M = design.suggest(3)
        design.observe(M, M @ image)
    assert np.linalg.norm(design.reconstruction - image) < 0.3 * np.linalg.norm(image)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d: d.suggest(0), "k must be"),
        (lambda d: d.suggest(2, candidates=np.ones((1, 24))), "at least k"),
        (lambda d: d.observe(np.ones((2, 24)), [1.0]), "y must hold 2"),
        (lambda d: d.observe(np.ones((2, 3)), [1.0, 2.0]), "24 columns"),
        (lambda d: SequentialDesign(None, potentials.Laplace(), -1.0, dim=3), "noise_variance"),
        (lambda d: SequentialDesign(None, potentials.Laplace(), 1.0), "length of w"),
        (lambda d: SequentialDesign([None, None], [potentials.Laplace()], 1.0, dim=3), "one per filter"),
    ],
)
def test_bad_input_gets_a_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call(designed()[0])


def test_a_point_estimate_cannot_drive_a_design():
    design, _ = designed("map")
    assert np.all(np.isfinite(design.reconstruction))
    with pytest.raises(ValueError, match="Gaussian posterior"):
        design.suggest(1)


@pytest.mark.parametrize("engine", ["gkl", "lvb"])
def test_operators_and_heavy_tails(engine):
    prior = potentials.StudentT(3.0, scale=0.16)
    thin, _ = designed(engine, prior=prior)
    thick, _ = designed(engine, prior=prior, filters=aslinearoperator(np.eye(24)))
    np.testing.assert_allclose(thin.reconstruction, thick.reconstruction, atol=1e-4)
    np.testing.assert_allclose(thin.uncertainty, thick.uncertainty, atol=1e-4)
