"""Expectation propagation written plainly: dense covariances, moments on a fine rule, formulas with site means."""

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, SiteFactor

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def tilted(log_phi, mean, var, centre):
    """log Z, mean and variance of N(mean, var)·φ, on panels that end at `centre`."""
    sd = np.sqrt(var)
    low, high = min(mean - 14 * sd, centre - sd), max(mean + 14 * sd, centre + sd)
    # panels shrink towards the centre, where there may be a cusp
    t = np.linspace(0.0, 1.0, 400) ** 3
    edges = np.unique(np.concatenate([centre + (low - centre) * t, centre + (high - centre) * t]))
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    x, w = (middle + half * NODES).ravel(), (half * WEIGHTS).ravel()
    logs = log_phi(x) - 0.5 * (x - mean) ** 2 / var - 0.5 * np.log(2 * np.pi * var)
    top = logs.max()
    p = w * np.exp(logs - top)
    z = p.sum()
    m = (p * x).sum() / z
    return top + np.log(z), m, (p * (x - m) ** 2).sum() / z


def site_functions(factor):
    """log φ_n of each site, one a function of an array."""
    blocks = [factor.potential.select([n]) for n in range(factor.potential.size)]
    return [lambda x, block=block: block.log_density(x[:, None])[:, 0] for block in blocks]


def slow_ep(mu, sigma, rows, functions, centres, power=1.0, sweeps=200, length=1.0):
    """(mean, covariance, log Z_EP, site precisions) for N(w|mu, sigma) ∏ φ_n(h_nᵀw)."""
    n = len(rows)
    tau, rho = np.zeros(n), np.zeros(n)
    prior = np.linalg.inv(sigma)

    def moments():
        cov = np.linalg.inv(prior + rows.T @ (tau[:, None] * rows))
        return cov @ (prior @ mu + rows.T @ rho), cov

    def cavity(i, mean, cov):
        m, v = rows[i] @ mean, rows[i] @ cov @ rows[i]
        var = 1.0 / (1.0 / v - power * tau[i])
        return var * (m / v - power * rho[i]), var

    for _ in range(sweeps):
        before = np.concatenate([tau, rho])
        for i in range(n):
            m, v = cavity(i, *moments())
            _, m_hat, v_hat = tilted(lambda x, i=i: power * functions[i](x), m, v, centres[i])
            tau[i] += length * ((1 / v_hat - 1 / v) / power - tau[i])
            rho[i] += length * ((m_hat / v_hat - m / v) / power - rho[i])
        if np.abs(np.concatenate([tau, rho]) - before).max() < 1e-11 * (1 + np.abs(before).max()):
            break
    mean, cov = moments()
    log_z = 0.5 * np.linalg.slogdet(cov)[1] - 0.5 * np.linalg.slogdet(sigma)[1]
    log_z += 0.5 * mean @ np.linalg.solve(cov, mean) - 0.5 * mu @ prior @ mu
    for i in range(n):
        m, v = cavity(i, mean, cov)
        log_hat = tilted(lambda x, i=i: power * functions[i](x), m, v, centres[i])[0]
        t, r = 1 / v + power * tau[i], m / v + power * rho[i]
        # ∫ N(x|m, v) exp(−½ητx² + ηρx) dx
        log_c = 0.5 * np.log(1 / v / t) + 0.5 * r**2 / t - 0.5 * m**2 / v
        log_z += (log_hat - log_c) / power
    return mean, cov, log_z, tau


def model_of(mu, sigma, rows, potential):
    return LatentLinearModel([GaussianFactor(mu, sigma), SiteFactor(rows, potential)])
