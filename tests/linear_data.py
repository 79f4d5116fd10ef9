"""Small problems that several tests share."""

import numpy as np


def features(n=60, d=4, seed=0):
    """Columns of different units and far from zero."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.array([1.0, 20.0, 0.1, 3.0, 1.0, 1.0])[:d] + np.arange(d) * 5.0


def predictor(X):
    """A linear predictor of standard deviation about one."""
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    return z @ np.array([1.0, -0.5, 0.3, 0.0, 0.0, 0.0])[: X.shape[1]]


def responses(n=60, d=4, seed=0):
    """X and one response of every kind."""
    X = features(n, d, seed)
    f = predictor(X)
    rng = np.random.default_rng(seed + 1)
    return X, {
        "numbers": 2.0 + f + 0.4 * rng.standard_normal(n),
        "outliers": 2.0 + f + 0.3 * rng.standard_t(2.0, size=n),
        "labels": np.where(f + rng.logistic(size=n) > 0.0, "yes", "no"),
        "three": np.digitize(f + rng.standard_normal(n), [-0.7, 0.6]),
        "counts": rng.poisson(np.exp(1.0 + 0.6 * f)),
    }
