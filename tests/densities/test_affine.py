"""Affine-independent densities: marginals and expectations against convolution, quadrature and draws; error bounds."""

import numpy as np
import pytest
from scipy.stats import norm

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import GaussianMixture, GeneralisedNormal, Logistic, Normal, SkewNormal, Stacked, StudentT
from latlin.densities.characteristic import FrequencyGrid, expect, tabulate

A = np.array([[1.3, 0.4], [-0.7, 0.9]])
B = np.array([0.5, -2.0])
SMOOTH = {
    "normal": Normal(),
    "skew-normal": SkewNormal([3.0, -1.5]),
    "logistic": Logistic(),
    "gaussian-mixture": GaussianMixture([0.4, 0.6], [0.0, 2.0], [1.0, 0.6]),
    "generalised-normal-flat": GeneralisedNormal(4.0),
}
ROUGH = {"generalised-normal-sparse": GeneralisedNormal([1.2, 1.6]), "student-t": StudentT(6.0)}
ALL = SMOOTH | ROUGH
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def panels(low, high, kinks=(), width=0.25):
    """Nodes and weights on [low, high] with edges at the kinks and twenty shrinking panels beside each."""
    shrunk = [k + sign * 2.0 ** -np.arange(1.0, 30.0) for k in kinks for sign in (-1.0, 1.0)]
    edges = np.unique(np.clip(np.concatenate([np.arange(low, high + width, width), kinks, *shrunk]), low, high))
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    return (middle + half * NODES).ravel(), (half * WEIGHTS).ravel()


def one(base, d, v):
    """Density of coordinate d at v."""
    return np.exp(base.logpdf(np.stack([v, v], axis=-1)))[..., min(d, 1)]


def row_cdf(base, d, v):
    return base.cdf(np.stack([v, v], axis=-1))[..., min(d, 1)]


@pytest.mark.parametrize("name", ALL)
def test_density_integrates_to_one_with_its_moments_and_entropy(name):
    density = AffineIndependent(A, B, ALL[name])
    w = density.sample(200_000, random_state=0)
    assert np.abs(w.mean(axis=0) - density.mean).max() < 0.02
    assert np.abs(np.cov(w.T) - density.covariance()).max() < 0.06
    assert np.allclose(density.variance, np.diagonal(density.covariance()))
    log_q = density.logpdf(w)
    assert abs(-log_q.mean() - density.entropy) < 5.0 * log_q.std() / np.sqrt(len(w))
    # ⟨uniform/q⟩ over a box is its volume
    box = np.random.default_rng(1).uniform(-1.0, 1.0, (100_000, 2)) + B
    inside = np.mean(np.all(np.abs(w - B) < 1.0, axis=1))
    assert abs(4.0 * np.exp(density.logpdf(box)).mean() - inside) < 0.01
    assert density.logpdf(w[0]) == pytest.approx(log_q[0])


def test_a_normal_base_is_a_gaussian():
    density = AffineIndependent(A, B, Normal())
    w = np.random.default_rng(2).standard_normal((5, 2))
    inverse, log_det = np.linalg.inv(A @ A.T), np.linalg.slogdet(2 * np.pi * A @ A.T)[1]
    expected = -0.5 * np.einsum("ni,ij,nj->n", w - B, inverse, w - B) - 0.5 * log_det
    assert np.allclose(density.logpdf(w), expected)
    marginals = density.project(np.array([[1.0, -2.0], [0.3, 0.0]]))
    x = np.linspace(-3.0, 3.0, 7)[:, None] * marginals.std + marginals.mean
    assert np.abs(marginals.pdf(x) - norm.pdf(x, marginals.mean, marginals.std)).max() < 1e-10
    assert np.abs(marginals.cdf(x) - norm.cdf(x, marginals.mean, marginals.std)).max() < 1e-10
    assert np.allclose(np.exp(marginals.logcdf(x)), marginals.cdf(x))
    assert np.allclose(np.exp(marginals.logpdf(x)), marginals.pdf(x))
    assert np.abs(marginals.skewness).max() == np.abs(marginals.kurtosis).max() == 0.0


@pytest.mark.parametrize("name", ALL)
def test_entropy_gradients(name):
    base, step = ALL[name], 1e-6
    d_a, d_free = AffineIndependent(A, B, base).entropy_gradients()
    for i, j in np.ndindex(2, 2):
        bump = step * np.outer(np.arange(2) == i, np.arange(2) == j)
        ends = [AffineIndependent(A + sign * bump, B, base).entropy for sign in (1.0, -1.0)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(d_a[i, j], abs=1e-7)
    for index in np.ndindex(d_free.shape):
        bump = np.zeros_like(d_free)
        bump[index] = step
        ends = [AffineIndependent(A, B, base.with_free(base.free + sign * bump)).entropy for sign in (1.0, -1.0)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(d_free[index], abs=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_characteristic_function_of_the_density(name):
    density = AffineIndependent(A, B, ALL[name])
    t = np.array([[0.3, -0.2], [1.0, 1.5], [0.0, 0.0]])
    draws = np.exp(1j * density.sample(400_000, random_state=3) @ t.T)
    assert np.abs(density.characteristic(t) - draws.mean(axis=0)).max() < 4.0 / np.sqrt(400_000)
    assert density.characteristic(t[0]) == pytest.approx(density.characteristic(t)[0])
    assert density.characteristic(t[2]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ALL)
def test_marginals_agree_with_a_million_draws(name):
    density = AffineIndependent(A, B, ALL[name])
    rows = np.array([[0.6, -1.1]])
    marginals = density.project(rows)
    draws = np.sort(density.sample(1_000_000, random_state=4) @ rows[0])
    at = draws[500::1000]
    empirical = (500 + 1000 * np.arange(len(at)) + 0.5) / len(draws)
    # Kolmogorov distance of n draws exceeds 1.95/√n once in a thousand
    assert np.abs(marginals.cdf(at[:, None])[:, 0] - empirical).max() < 1.95 / 1000.0
    assert marginals.mean[0] == pytest.approx(draws.mean(), abs=0.01)
    assert marginals.variance[0] == pytest.approx(draws.var(), rel=0.02)
    third = np.mean(((draws - draws.mean()) / draws.std()) ** 3)
    assert marginals.skewness[0] == pytest.approx(third, abs=0.15 if name == "student-t" else 0.03)


@pytest.mark.parametrize("name", ALL)
def test_distribution_function_agrees_with_convolution_at_five_quantiles(name):
    base = ALL[name]
    density = AffineIndependent(A, B, base)
    rows = np.array([[1.0, 0.4]])
    marginals = density.project(rows)
    a = (rows @ A)[0]
    q = np.array([0.01, 0.2, 0.5, 0.9, 0.999])
    points = marginals.quantile(q[:, None])
    assert np.abs(marginals.cdf(points)[:, 0] - q).max() < 1e-11
    # F(x) = ∫ q₁(v) F₂((x − β − a₁v)/a₂) dv
    exact = []
    for x in points[:, 0]:
        rest = (x - marginals.mean[0]) / a[1]
        v, w = panels(-40.0, 40.0, kinks=(0.0, (x - marginals.mean[0]) / a[0]))
        inner = row_cdf(base, 1, rest - a[0] / a[1] * v)
        exact.append(w @ (one(base, 0, v) * (inner if a[1] > 0.0 else 1.0 - inner)))
    limit = 1e-8 if name in SMOOTH else 3e-6
    assert np.abs(np.array(exact) - q).max() < limit


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kinked", [False, True])
def test_expectations_agree_with_dense_quadrature(name, kinked):
    base = ALL[name]
    marginals = AffineIndependent(A, B, base).project(np.array([[1.0, 0.4]]))
    a = (np.array([1.0, 0.4]) @ A)[None]
    centre, width = marginals.mean[0] + 0.3, 0.2

    def f(x):
        r = (x - centre) / width
        return -np.abs(r) if kinked else -np.logaddexp(0.0, -r)

    v, w = panels(-60.0, 60.0, kinks=(0.0,), width=1.0)
    total = 0.0
    for v2, w2 in zip(v, w * one(base, 1, v), strict=True):
        if w2 > (1e-12 if name == "student-t" else 1e-15):
            kink = (centre - marginals.mean[0] - a[0, 1] * v2) / a[0, 0]
            # the inner integral in closed panels about its own kink
            total += w2 * inner_integral(base, f, marginals.mean[0] + a[0, 1] * v2, a[0, 0], kink)
    found = marginals.expectation(f, ((centre, width),), smooth=not kinked)[0]
    limit = {"student-t": 1e-6, "generalised-normal-sparse": 1e-7}.get(name, 1e-8)
    assert found == pytest.approx(total, abs=limit)


def inner_integral(base, f, shift, scale, kink):
    half = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 9.0, 14.0, 20.0, 40.0, 60.0])
    edges = np.unique(
        np.concatenate(
            [
                -half,
                half,
                [1e-4, -1e-4, 1e-3, -1e-3],
                np.clip(kink + 0.3 * half[:4], -60, 60),
                np.clip(kink - 0.3 * half[:4], -60, 60),
            ]
        )
    )
    h, m = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    v, w = (m + h * NODES).ravel(), (h * WEIGHTS).ravel()
    return w @ (one(base, 0, v) * f(shift + scale * v))


@pytest.mark.parametrize("widen", [0.2, 0.3, 0.4])
def test_truncation_and_aliasing_are_bounded_by_the_mass_beyond_the_window(widen):
    base = Logistic()
    fine = FrequencyGrid.level(3)
    exact = expect(np.tanh, np.array([0.3]), np.array([[0.8]]), tabulate(base, 1, fine), ((0.0, 1.0),)).value[0]
    short = tabulate(base, 1, fine._replace(widen=widen))
    found = expect(np.tanh, np.array([0.3]), np.array([[0.8]]), short, ((0.0, 1.0),)).value[0]
    outside = 2.0 * base.cdf(-widen * base.reach()[0])
    # |f − chord| ≤ 2 inside; outside, f and the chord's excess: ⟨|z|; |z| > R⟩/R of it at most
    assert 0.0 < abs(found - exact) < 8.0 * outside


@pytest.mark.parametrize("last", [2.0, 3.0, 4.0])
def test_discretisation_is_bounded_by_the_frequencies_left_out(last):
    base, fine = Normal(), FrequencyGrid.level(2)
    exact = expect(np.tanh, np.array([0.3]), np.array([[2.0]]), tabulate(base, 1, fine), ((0.0, 1.0),)).value[0]
    coarse = tabulate(base, 1, fine._replace(last=last))
    found = expect(np.tanh, np.array([0.3]), np.array([[2.0]]), coarse, ((0.0, 1.0),)).value[0]
    dt = np.pi / (8.0 * fine.widen)
    left = np.exp(-0.5 * (dt * np.arange(np.ceil(last / dt) + 1, 200)) ** 2).sum()
    # |C_j| ≤ ∫|f| ≤ 2·2R, each frequency twice over 2R
    assert 0.0 < abs(found - exact) < 4.0 * left


def test_tables_interpolate_to_the_sixth_order():
    base, errors = SkewNormal(2.0), []
    for step in (1.0 / 16.0, 1.0 / 32.0):
        table = tabulate(base, 1, FrequencyGrid.level(2)._replace(step=step))
        found = expect(np.tanh, np.array([0.3]), np.array([[0.9]]), table, ((0.0, 1.0),)).value[0]
        exact = expect(
            np.tanh, np.array([0.3]), np.array([[0.9]]), tabulate(base, 1, FrequencyGrid.level(4)), ((0.0, 1.0),)
        )
        errors.append(abs(found - exact.value[0]))
    assert errors[1] < errors[0] / 30.0
    assert errors[1] < 1e-6


def test_different_families_on_different_coordinates():
    density = AffineIndependent(A, B, Stacked([(SkewNormal(4.0), 1), (Normal(), 1)]))
    marginals = density.project(np.linalg.inv(A))
    assert marginals.skewness[0] == pytest.approx(SkewNormal(4.0).skewness[0])
    assert abs(marginals.skewness[1]) < 1e-12


def test_heavy_tails_have_infinite_cumulants_only_where_they_are_used():
    density = AffineIndependent(np.eye(2), np.zeros(2), Stacked([(StudentT(3.5), 1), (Normal(), 1)]))
    assert density.project(np.eye(2)).kurtosis.tolist() == [np.inf, 0.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones((2, 2)), B, Normal()), "A must be invertible"),
        ((np.zeros((2, 2)), B, Normal()), "A must be invertible"),
        ((np.ones((2, 3)), B, Normal()), "square"),
        ((A, np.zeros(3), Normal()), "b must have shape"),
        ((A * np.nan, B, Normal()), "finite"),
        ((A, B, SkewNormal([1.0, 2.0, 3.0])), "3 shapes"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        AffineIndependent(*arguments)


def test_a_quantile_needs_a_probability():
    with pytest.raises(ValueError, match="strictly between"):
        AffineIndependent(A, B, Normal()).project(A).quantile(1.0)
