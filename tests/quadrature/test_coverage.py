"""95 % intervals of 100 random smooth problems: draws of Gaussian processes and mixtures of Gaussians."""

import numpy as np
from scipy.special import erf

from latlin.quadrature import Gaussian, Uniform, integrate

HALF = np.sqrt(3.0)


def waves(rng, d, gaussian):
    """A draw of a squared-exponential process (random Fourier features) and its integral."""
    length = rng.uniform(0.4, 1.0) * np.sqrt(d)
    w = rng.standard_normal((400, d)) / length
    a = rng.standard_normal(400) * np.sqrt(2.0 / 400.0)
    phase = rng.uniform(0.0, 2.0 * np.pi, 400)
    damping = np.exp(-0.5 * np.sum(w**2, axis=1)) if gaussian else np.prod(np.sinc(w * HALF / np.pi), axis=1)
    return lambda x: np.cos(x @ w.T + phase) @ a, float(np.sum(a * np.cos(phase) * damping))


def bumps(rng, d, gaussian):
    """A mixture of Gaussian bumps and its integral."""
    m = rng.integers(1, 4)
    centre = 0.8 * rng.standard_normal((m, d)) if gaussian else rng.uniform(-1.5, 1.5, (m, d))
    s = rng.uniform(0.5, 1.2, (m, d))
    w = rng.uniform(0.3, 1.0, m)
    if gaussian:
        each = s / np.sqrt(1.0 + s**2) * np.exp(-0.5 * centre**2 / (1.0 + s**2))
    else:
        root = np.sqrt(2.0) * s
        each = np.sqrt(np.pi / 2.0) * s / (2.0 * HALF) * (erf((HALF - centre) / root) + erf((HALF + centre) / root))

    def f(x):
        return np.exp(-0.5 * np.sum(((x[:, None] - centre) / s) ** 2, axis=2)) @ w

    return f, float(w @ np.prod(each, axis=1))


def covers(seed):
    rng = np.random.default_rng(seed)
    d, family, gaussian = 1 + seed % 2, (waves, bumps)[seed // 2 % 2], seed // 4 % 2 == 0
    f, truth = family(rng, d, gaussian)
    measure = Gaussian(0.0, 1.0, dim=d) if gaussian else Uniform(-HALF, HALF, dim=d)
    n = 10 * d
    low, high = integrate(f, measure, n, initial=n, random_state=rng).interval(0.95)
    return low <= truth <= high


def test_intervals_cover():
    share = np.mean([covers(seed) for seed in range(100)])
    assert 0.90 <= share <= 0.99
