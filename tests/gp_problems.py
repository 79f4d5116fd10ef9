"""Small data sets that the tests of Gaussian processes share."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

KERNEL = ConstantKernel(1.3) * RBF([1.0, 2.0])


def inputs(n=30, seed=0):
    return np.random.default_rng(seed).uniform(-3.0, 3.0, (n, 2))


def targets(kind, X, seed=1):
    """Targets of a kind of likelihood: with an outlier, counts, ordered classes or labels."""
    rng = np.random.default_rng(seed)
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(len(X))
    if kind == "poisson":
        return rng.poisson(np.exp(0.5 * y)).astype(float)
    if kind == "ordinal":
        return np.digitize(y, [-0.5, 0.5]).astype(float)
    if kind == "labels":
        return (y + 0.3 * rng.standard_normal(len(y)) > 0.0).astype(float)
    y[3] += 3.0
    return y


def dense_prediction(K, gamma, nu, cross, prior):
    """Mean and covariance at new inputs by the textbook formulas, with inverses (zero prior mean)."""
    inverse = np.linalg.inv(K)
    S = np.linalg.inv(inverse + np.diag(gamma))
    A = cross @ inverse
    return A @ S @ nu, prior - A @ cross.T + A @ S @ A.T
