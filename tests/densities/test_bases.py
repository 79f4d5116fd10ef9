"""Base densities: standardised, and every closed form or series against integration and differences."""

import numpy as np
import pytest

from latlin.densities.bases import (
    FAMILIES,
    GaussianMixture,
    GeneralisedNormal,
    Logistic,
    Normal,
    SkewNormal,
    Stacked,
    StudentT,
)

BASES = {
    "normal": Normal(),
    "skew-normal": SkewNormal([0.0, 1.0, -4.0, 12.0]),
    "generalised-normal": GeneralisedNormal([1.05, 1.5, 2.0, 3.3, 6.0]),
    "student-t": StudentT([5.0, 9.0, 40.0]),
    "logistic": Logistic(),
    "gaussian-mixture": GaussianMixture([[0.3, 0.7], [0.6, 0.4]], [[0.0, 2.0], [1.0, -0.5]], [[1.0, 0.5], [0.7, 2.0]]),
}
FREQUENCIES = np.array([0.0, 1e-3, 0.2, 1.0, 2.5, 6.0, 15.0])


def integrator():
    """Gauss–Legendre panels on ±300 that shrink towards zero, where a generalised normal has its kink."""
    edges = np.concatenate(
        [[0.0], np.geomspace(1e-7, 0.1, 13), np.arange(0.2, 12.0, 0.1), np.geomspace(12.0, 300.0, 60)]
    )
    t, w = np.polynomial.legendre.leggauss(20)
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    x, weight = (middle + half * t).ravel(), (half * w).ravel()
    return np.concatenate([-x[::-1], x]), np.concatenate([weight[::-1], weight])


X, W = integrator()


def mass(base):
    """Weights times density, (nodes, rows)."""
    return W[:, None] * np.exp(base.logpdf(np.broadcast_to(X[:, None], (len(X), base.rows))))


def test_every_family_is_in_the_table():
    assert set(BASES) == set(FAMILIES)


@pytest.mark.parametrize("name", BASES)
def test_mean_zero_variance_one_and_cumulants(name):
    base = BASES[name]
    q = mass(base)
    # a t with 5 degrees of freedom leaves 300⁻³ of its variance beyond 300
    slack = 1e-6 if name == "student-t" else 1e-10
    assert np.abs(q.sum(axis=0) - 1.0).max() < 1e-10
    assert np.abs(X @ q).max() < 1e-10
    assert np.abs(X**2 @ q - 1.0).max() < slack
    third, fourth = base.third_and_fourth()
    assert np.abs(X**3 @ q - third).max() < 1e-8
    light = fourth < 3.0
    assert np.abs(X**4 @ q - 3.0 - fourth)[light].max() < (1e-3 if name == "student-t" else 1e-8)


@pytest.mark.parametrize("name", BASES)
def test_entropy_and_distribution_function(name):
    base = BASES[name]
    q = mass(base)
    log_q = base.logpdf(np.broadcast_to(X[:, None], (len(X), base.rows)))
    assert np.abs(-(q * log_q).sum(axis=0) - base.entropy()).max() < (1e-8 if name == "student-t" else 1e-10)
    for point in (-1.3, 0.0, 0.4):
        inside = (X[:, None] <= 0.0) * q
        steps = np.linspace(min(point, 0.0), max(point, 0.0), 20001)
        between = np.exp(base.logpdf(np.broadcast_to(steps[:, None], (20001, base.rows))))
        moved = np.trapezoid(between, steps, axis=0) * np.sign(point)
        assert np.abs(inside.sum(axis=0) + moved - base.cdf(np.full(base.rows, point))).max() < 1e-8


@pytest.mark.parametrize("name", BASES)
def test_characteristic_function_is_the_transform_of_the_density(name):
    base = BASES[name]
    q = mass(base)
    waves = np.exp(1j * np.outer(FREQUENCIES, X))
    value, slope = base.characteristic(FREQUENCIES)
    assert np.abs(value - (waves @ q).T).max() < 2e-10
    assert np.abs(slope - (waves @ (1j * X[:, None] * q)).T).max() < (1e-6 if name == "student-t" else 1e-9)


@pytest.mark.parametrize("name", [name for name in BASES if BASES[name].n_free])
def test_derivatives_in_the_free_shapes(name):
    base, step = BASES[name], 1e-5
    s = FREQUENCIES
    for p in range(base.n_free):
        ends = []
        for sign in (1.0, -1.0):
            free = base.free.copy()
            # away from the Gaussian, at which the skew-normal has one derivative only
            free[:, p] += sign * step + (0.1 if name == "skew-normal" else 0.0)
            ends.append(base.with_free(free))
        here = base.with_free(base.free + (0.1 if name == "skew-normal" else 0.0) * (np.arange(base.n_free) == p))
        d_entropy = (ends[0].entropy() - ends[1].entropy()) / (2.0 * step)
        d_phi = (ends[0].characteristic(s).value - ends[1].characteristic(s).value) / (2.0 * step)
        assert np.abs(d_entropy - here.entropy_gradient()[:, p]).max() < 1e-8
        assert np.abs(d_phi - here.characteristic_gradient(s)[:, p]).max() < 1e-8


def test_the_skew_normal_leaves_the_gaussian_at_first_order():
    base = SkewNormal(0.0)
    s = np.array([0.5, 1.0, 2.0])
    # ∂φ/∂γ = e^{−s²/2}(is)³/6 at the Gaussian
    expected = 0.99 * np.exp(-0.5 * s * s) * (-1j * s**3) / 6.0
    assert np.abs(base.characteristic_gradient(s)[0, 0] - expected).max() < 1e-12
    tiny = SkewNormal.of_skewness(np.array([1e-7]))
    assert np.abs(tiny.characteristic_gradient(s)[0, 0] - expected).max() < 0.02


@pytest.mark.parametrize("name", BASES)
def test_draws_have_the_moments(name):
    base = BASES[name]
    draws = base.sample((200_000, max(base.rows, 2)), np.random.default_rng(0))
    assert np.abs(draws.mean(axis=0)).max() < 5.0 / np.sqrt(200_000)
    assert np.abs(draws.var(axis=0) - 1.0).max() < 0.05
    sorted_draws = np.sort(draws[:, : base.rows], axis=0)[::1000]
    empirical = np.arange(0, 200_000, 1000)[:, None] / 200_000
    assert np.abs(base.cdf(sorted_draws) - empirical).max() < 2.0 / np.sqrt(200_000)


def test_stacked_bases_answer_for_their_own_coordinates():
    stacked = Stacked([(SkewNormal([1.0, 3.0]), 2), (Normal(), 3)])
    v = np.random.default_rng(1).standard_normal((4, 5))
    parts = np.concatenate([SkewNormal([1.0, 3.0]).logpdf(v[:, :2]), Normal().logpdf(v[:, 2:])], axis=1)
    assert np.array_equal(stacked.logpdf(v), parts)
    assert stacked.characteristic(FREQUENCIES).value.shape == (5, len(FREQUENCIES))
    assert stacked.sample((7, 5), np.random.default_rng(0)).shape == (7, 5)
    assert stacked.entropy().shape == stacked.reach().shape == (5,)
    with pytest.raises(ValueError, match="2 shapes cannot serve 3"):
        Stacked([(SkewNormal([1.0, 3.0]), 3)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GeneralisedNormal(1.0), "not differentiable"),
        (lambda: GeneralisedNormal([2.0, 0.5]), "got 0.5"),
        (lambda: StudentT(2.0), "no finite variance"),
        (lambda: StudentT([5.0, np.nan]), "df must be finite"),
        (lambda: SkewNormal("much"), "slant must hold real numbers"),
        (lambda: SkewNormal([[1.0]]), "one number per coordinate"),
        (lambda: GaussianMixture([0.5, -0.5]), "must be positive"),
        (lambda: GaussianMixture([0.5, 0.5], [0.0, 1.0, 2.0]), "broadcast to one shape"),
        (lambda: GaussianMixture([0.5, 0.5], [0.0, np.inf]), "must be finite"),
    ],
)
def test_bad_shapes_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
