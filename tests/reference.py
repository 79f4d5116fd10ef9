"""Slow, independent answers for tests: integration on grids, and a plain optimiser of the Gaussian KL bound.

Nothing here uses a closed form, a quadrature rule or an engine of the library; only `log_density` of the potentials.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp


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


def best_mixture_bound(log_p, points, cell, components, starts, seed=0):
    """The highest KL bound that a search over mixtures of full Gaussians in the plane finds, by sums over a grid.

    The entropy of a mixture is exact here, and all weights, means and factors are free; `starts` draws of them begin.
    """
    rng = np.random.default_rng(seed)
    p = np.exp(log_p - logsumexp(log_p))
    floor = np.log(2.0 * np.sqrt(cell))  # the grid sees no narrower Gaussian
    bounds = ([(-8.0, 8.0)] + [(-5.0, 5.0)] * 2 + [(floor, 2.0), (-5.0, 5.0), (floor, 2.0)]) * components
    best = -np.inf
    for _ in range(starts):
        start = np.zeros((components, 6))
        start[:, 1:3] = points[rng.choice(len(points), components, p=p)]
        start[:, 3] = start[:, 5] = np.log(rng.uniform(0.15, 0.6, components))
        search = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": 1500, "maxfun": 2000}}
        found = minimize(_mixture_loss, start.ravel(), (log_p, points, cell), **search)
        # what the grid does not resolve has another mass there
        mass = np.exp(_mixture_parts(found.x.reshape(-1, 6), points)[0]).sum() * cell
        best = max(best, -found.fun) if abs(mass - 1.0) < 1e-4 else best
    return best


def _mixture_parts(t, points):
    """log πN(w) of every part, and u = L⁻¹(w − m); rows of t are logit, mean and log a, b, log c of L = (a 0; b c)."""
    logits, means, (log_a, b, log_c) = t[:, 0], t[:, 1:3], t[:, 3:].T
    away = points - means[:, None]
    u = away[..., 0] / np.exp(log_a)[:, None]
    v = (away[..., 1] - b[:, None] * u) / np.exp(log_c)[:, None]
    scale = (logits - logsumexp(logits) - log_a - log_c - np.log(2.0 * np.pi))[:, None]
    return scale - 0.5 * (u * u + v * v), u, v


def _mixture_loss(t, log_p, points, cell):
    """−∫ q log(p/q) and its slopes; q has mass one on the grid: what that does not resolve gains nothing."""
    t = t.reshape(-1, 6)
    a, b, c = np.exp(t[:, 3]), t[:, 4], np.exp(t[:, 5])
    log_parts, u, v = _mixture_parts(t, points)
    log_mass = logsumexp(log_parts)
    parts, gain = np.exp(log_parts - log_mass), log_p - logsumexp(log_parts, axis=0) + log_mass + np.log(cell)
    value = float(parts.sum(axis=0) @ gain)
    # L⁻ᵀu
    second = v / c[:, None]
    first = (u - b[:, None] * second) / a[:, None]
    pull = parts * (gain - value)
    total = pull.sum(axis=1)
    slopes = [
        total,
        (pull * first).sum(axis=1),
        (pull * second).sum(axis=1),
        (pull * first * u).sum(axis=1) * a - total,
        (pull * second * u).sum(axis=1),
        (pull * second * v).sum(axis=1) * c - total,
    ]
    return -value, -np.stack(slopes, axis=1).ravel()
