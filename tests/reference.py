"""Slow, independent answers for tests: integration on grids, and a plain optimiser of the Gaussian KL bound.

Nothing here uses a closed form, a quadrature rule or an engine of the library; only `log_density` of the potentials.
"""

import numpy as np
from scipy.optimize import minimize


def dense_rows(factor, dim):
    """Rows of a site factor as a dense array."""
    if factor.H is None:
        return np.eye(dim)
    if hasattr(factor.H, "toarray"):
        return factor.H.toarray()
    return factor.H @ np.eye(dim) if not isinstance(factor.H, np.ndarray) else factor.H


def is_smooth(model):
    """No site has a kink, so that the trapezoid rule converges faster than any power of its step."""
    return all(factor.potential.smooth for factor in model.sites)


def log_joint(model, w):
    """log ∏ factors at each row of w."""
    total = np.zeros(len(w))
    for factor in model.gaussians:
        rows = np.eye(model.dim) if factor.H is None else dense_rows(factor, model.dim)
        size = len(rows)
        cov = factor.cov if factor.cov.ndim == 2 else np.diag(np.broadcast_to(factor.cov, size))
        deviation = w @ rows.T - factor.mean
        total -= 0.5 * np.einsum("ni,ni->n", deviation @ np.linalg.inv(cov), deviation)
        total -= 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    for factor in model.sites:
        x = w @ dense_rows(factor, model.dim).T + (0.0 if factor.offset is None else factor.offset)
        weight = 1.0 if factor.weight is None else factor.weight
        total += (weight * factor.potential.log_density(x)).sum(axis=1)
    return total


def grid(centre, root, half_width, count):
    """Points centre + root·t on a tensor grid of t, and the volume of a cell."""
    line = np.linspace(-half_width, half_width, count)
    t = np.stack(np.meshgrid(*[line] * len(centre), indexing="ij"), axis=-1).reshape(-1, len(centre))
    volume = (line[1] - line[0]) ** len(centre) * abs(np.linalg.det(root))
    return centre + t @ root.T, volume


def brute_force(model, posterior, half_width=12.0, count=None):
    """(log Z, mean, covariance) by summing the joint over a grid of posterior standard deviations."""
    count = count or ({1: 2001, 2: 301, 3: 91} if is_smooth(model) else {1: 40001, 2: 801, 3: 91})[model.dim]
    root = np.linalg.cholesky(posterior.covariance())
    points, volume = grid(posterior.mean, root, half_width, count)
    logs = np.concatenate([log_joint(model, part) for part in np.array_split(points, 1 + len(points) // 200_000)])
    top = logs.max()
    weights = np.exp(logs - top)
    log_z = top + np.log(weights.sum() * volume)
    weights /= weights.sum()
    mean = weights @ points
    return log_z, mean, (points - mean).T @ (weights[:, None] * (points - mean))


class PlainBound:
    """The Gaussian KL bound in (m, C), with expectations by the trapezoid rule (16,001 points at kinks)."""

    def __init__(self, model):
        self.model = model
        self.z = np.linspace(-9.0, 9.0, 801 if is_smooth(model) else 16001)
        self.p = np.exp(-0.5 * self.z**2)
        self.p /= self.p.sum()

    def unpack(self, theta):
        d = self.model.dim
        root = np.zeros((d, d))
        root[np.tril_indices(d)] = theta[d:]
        return theta[:d], root

    def value(self, theta):
        m, root = self.unpack(theta)
        d = self.model.dim
        s = root @ root.T
        entropy = 0.5 * d * np.log(2 * np.pi * np.e) + np.log(np.abs(np.diag(root))).sum()
        total = entropy
        for factor in self.model.gaussians:
            rows = np.eye(d) if factor.H is None else dense_rows(factor, d)
            cov = factor.cov if factor.cov.ndim == 2 else np.diag(np.broadcast_to(factor.cov, len(rows)))
            inverse = np.linalg.inv(cov)
            deviation = rows @ m - factor.mean
            total -= 0.5 * (deviation @ inverse @ deviation + np.trace(inverse @ rows @ s @ rows.T))
            total -= 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
        for factor in self.model.sites:
            rows = dense_rows(factor, d)
            mean = rows @ m + (0.0 if factor.offset is None else factor.offset)
            spread = np.sqrt(np.einsum("ni,ij,nj->n", rows, s, rows))
            x = mean + self.z[:, None] * spread
            weight = 1.0 if factor.weight is None else factor.weight
            total += (weight * (self.p @ factor.potential.log_density(x))).sum()
        return total

    def at(self, posterior):
        """The parameters of a posterior."""
        root = np.linalg.cholesky(posterior.covariance())
        return np.concatenate([posterior.mean, root[np.tril_indices(self.model.dim)]])

    def optimum(self, start):
        """The largest value a quasi-Newton method with numerical gradients finds from `start`."""
        best = minimize(lambda t: -self.value(t), start, method="BFGS", options={"gtol": 1e-7, "maxiter": 500})
        return -best.fun
