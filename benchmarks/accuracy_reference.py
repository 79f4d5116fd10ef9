"""Long NUTS runs of the problems of `accuracy.py`, kept as small files of moments, quantiles and their errors.

Run once, where NumPyro is installed: python benchmarks/accuracy_reference.py [problem …]. Four chains, 64-bit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS

from _accuracy_problems import Problem, problems

FOLDER = Path(__file__).parent / "references"
WARMUP, SAMPLES, CHAINS = 500, 2000, 4
LEVELS = np.linspace(0.0, 1.0, 41)[1:-1]


def log_sites(problem: Problem, x: Any) -> Any:
    """Σ_n log φ_n(x_n), constants of the data left out."""
    y = problem.y
    if problem.family == "logit":
        return -jnp.sum(jax.nn.softplus(-y * x))
    if problem.family == "probit":
        return jnp.sum(jax.scipy.special.log_ndtr(y * x))
    if problem.family == "poisson":
        return jnp.sum(y * x - jnp.exp(x))
    r = (x - y) / problem.scale
    if problem.family == "gaussian":
        return -0.5 * jnp.sum(r**2)
    return -0.5 * (problem.df + 1.0) * jnp.sum(jnp.log1p(r**2 / problem.df))


def sample(problem: Problem) -> np.ndarray:
    """Draws of w, (chains, samples, dim)."""
    root = np.linalg.cholesky(problem.cov) if np.ndim(problem.cov) == 2 else None

    def potential(u: Any) -> Any:
        w = u if root is None else root @ u
        x = w if problem.X is None else problem.X @ w
        if problem.laplace is not None:
            prior = -jnp.sum(jnp.abs(w)) / problem.laplace
        else:
            prior = -0.5 * jnp.sum(u**2) / (1.0 if root is not None else problem.cov)
        return -(prior + log_sites(problem, x))

    kernel = NUTS(potential_fn=potential, target_accept_prob=0.9)
    chains = MCMC(
        kernel, num_warmup=WARMUP, num_samples=SAMPLES, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    start = 0.1 * np.random.default_rng(0).normal(size=(CHAINS, problem.dim))
    chains.run(jax.random.PRNGKey(0), init_params=jnp.asarray(start))
    u = np.asarray(chains.get_samples(group_by_chain=True))
    return u if root is None else u @ root.T


def main() -> None:
    """Sample and write."""
    jax.config.update("jax_enable_x64", True)
    FOLDER.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or [name for name in problems() if not (FOLDER / f"{name}.npz").exists()]
    for name in chosen:
        w = sample(problems()[name])
        flat = w.reshape(-1, w.shape[-1])
        mean, sd = flat.mean(axis=0), flat.std(axis=0)
        ess, ess_square = effective_sample_size(w), effective_sample_size((w - mean) ** 2)
        kurtosis = np.mean((flat - mean) ** 4, axis=0) / sd**4
        np.savez_compressed(
            FOLDER / f"{name}.npz",
            mean=mean,
            mean_error=sd / np.sqrt(ess),
            sd=sd,
            sd_error=0.5 * sd * np.sqrt((kurtosis - 1.0) / ess_square),
            levels=LEVELS,
            quantiles=np.quantile(flat, LEVELS, axis=0).astype(np.float32),
            r_hat=gelman_rubin(w),
        )
        line = f"{name}: largest R-hat {gelman_rubin(w).max():.4f}, smallest effective size {ess.min():.0f}\n"
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
