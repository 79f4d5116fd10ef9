"""Compiled passes of a mixture against plain numpy, and the implicit gamma derivative against mpmath."""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, gammaincinv, logsumexp

from latlin.mixture import kernels as mixture_kernels
from latlin.numerics.special import exponentiate

N, D, K = 301, 3, 4


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    factor = np.tril(rng.normal(size=(K, D, D)))
    return {
        "rows": rng.normal(size=(N, D)) * 3,
        "weights": rng.gamma(2.0, size=N),
        "offset": rng.normal(size=K),
        "mean": rng.normal(size=(K, D)),
        "precision": rng.gamma(2.0, size=(K, D)),
        "factor": factor,
    }


def plain(rows, weights, joint):
    log_sum = logsumexp(joint, axis=1)
    return weights @ log_sum, np.exp(joint - log_sum[:, None]) * weights[:, None]


def test_diagonal_pass_equals_numpy(problem):
    rows, weights, offset, mean, precision, _ = problem.values()
    difference = rows[:, None] - mean
    joint = offset - 0.5 * (precision * difference**2).sum(axis=2)
    total, r = plain(rows, weights, joint)
    sum_log, count, first, second = mixture_kernels.diagonal_pass(rows, weights, offset, mean, precision)
    assert sum_log == pytest.approx(total, rel=1e-13)
    np.testing.assert_allclose(count, r.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(first, np.einsum("nk,nkd->kd", r, difference), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(second, np.einsum("nk,nkd->kd", r, difference**2), rtol=1e-12)
    np.testing.assert_allclose(mixture_kernels.diagonal_joint(rows, offset, mean, precision), joint, rtol=1e-12)


def test_pooled_pass_sums_the_products_of_all_components(problem):
    rows, weights, offset, mean, precision, _ = problem.values()
    difference = rows[:, None] - mean
    _, r = plain(rows, weights, offset - 0.5 * (precision * difference**2).sum(axis=2))
    second = mixture_kernels.pooled_pass(rows, weights, offset, mean, precision)[3]
    expected = np.einsum("nk,nkd,nke->de", r, difference, difference)
    np.testing.assert_allclose(second, expected, rtol=1e-11, atol=1e-9)


def test_full_pass_equals_numpy(problem):
    rows, weights, offset, mean, _, factor = problem.values()
    difference = rows[:, None] - mean
    joint = offset - 0.5 * (np.einsum("kde,nke->nkd", factor, difference) ** 2).sum(axis=2)
    total, r = plain(rows, weights, joint)
    sum_log, count, _, second = mixture_kernels.full_pass(rows, weights, offset, mean, factor)
    assert sum_log == pytest.approx(total, rel=1e-13)
    np.testing.assert_allclose(count, r.sum(axis=0), rtol=1e-11)
    expected = np.einsum("nk,nkd,nke->kde", r, difference, difference)
    np.testing.assert_allclose(second, expected, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(mixture_kernels.full_joint(rows, offset, mean, factor), joint, rtol=1e-12)


def test_compiled_exponential_is_accurate_and_gives_zero_far_down():
    x = np.concatenate([-np.logspace(-12, np.log10(707.9), 4000), [0.0, -709.0, -1e9]])
    values, scratch = x.copy(), np.empty_like(x)
    exponentiate(values, len(x), scratch)
    np.testing.assert_allclose(values[:-2], np.exp(x[:-2]), rtol=5e-16)
    assert (values[-2:] == 0.0).all()


def test_incomplete_pass_integrates_the_missing_entries_out():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(2, D, D)) + 2 * np.eye(D)
    precision = root @ root.transpose(0, 2, 1)
    cov = np.linalg.inv(precision)
    mean = rng.normal(size=(2, D))
    log_weights = np.log([0.3, 0.7])
    offset = log_weights + 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * D * np.log(2 * np.pi)
    row = np.array([[0.4, np.nan, -1.2]])
    seen = np.array([True, False, True])
    parts = [(m[seen], c[np.ix_(seen, seen)]) for m, c in zip(mean, cov, strict=True)]
    density = np.array([stats.multivariate_normal.logpdf(row[0, seen], *part) for part in parts])
    result = mixture_kernels.incomplete_pass(
        row, np.ones(1), ~seen[None], np.zeros(1, dtype=np.intp), offset, mean, precision
    )
    assert result[0] == pytest.approx(logsumexp(log_weights + density), rel=1e-12)
    k, r = 0, np.exp(log_weights + density - result[0])[0]
    gain = cov[k][1, seen] @ np.linalg.inv(cov[k][np.ix_(seen, seen)])
    filled = gain @ (row[0, seen] - mean[k, seen])
    left = cov[k][1, 1] - gain @ cov[k][seen, 1]
    assert result[2][k, 1] == pytest.approx(r * filled, rel=1e-10)
    assert result[3][k, 1, 1] == pytest.approx(r * (filled**2 + left), rel=1e-10)


@pytest.mark.parametrize("shape", [0.05, 0.7, 4.0, 250.0])
@pytest.mark.parametrize("level", [1e-4, 0.3, 0.9, 0.9999])
def test_gamma_slope_is_the_implicit_derivative(shape, level):
    y = gammaincinv(shape, level)
    with mpmath.workdps(40):
        cdf = mpmath.diff(lambda a: mpmath.gammainc(a, 0, y, regularized=True), shape, h=mpmath.mpf(10) ** -12)
        log_density = (mpmath.mpf(shape) - 1) * mpmath.log(y) - y - mpmath.loggamma(shape)
        exact = float(-cdf / mpmath.exp(log_density) / y)
    found = mixture_kernels.gamma_log_slopes(
        np.array([shape]), np.log(np.array([[y]])), digamma(np.array([shape + 1.0]))
    )
    assert found[0, 0] == pytest.approx(exact, rel=1e-10)
