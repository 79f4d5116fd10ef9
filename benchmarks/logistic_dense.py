"""Dense Bayesian logistic regression: MAP, Laplace and full Gaussian KL against scikit-learn and NumPyro.

The floor is what a point estimate with error bars costs: scikit-learn's newton-cholesky MAP plus one Hessian, Cholesky
and inverse. NumPyro's full-rank SVI runs until its ELBO is within 10 nats of the Gaussian KL optimum, or 20,000 steps
(5,000 at the small size).

    python benchmarks/logistic_dense.py [--peers] [--repeats 5]
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import lapack
from sklearn.linear_model import LogisticRegression

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.engines import GaussianKL

SIZES = ((16000, 123), (2500, 500), (5000, 1000), (1000, 20))


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Binary features of density 0.11 for the wide one, Gaussian features for the others; labels from the model."""
    rng = np.random.default_rng(0)
    x = (rng.random((n, d)) < 0.11).astype(float) if d == 123 else rng.standard_normal((n, d))
    w = rng.standard_normal(d)
    return x, (rng.random(n) < 1.0 / (1.0 + np.exp(-x @ w))).astype(int)


def floor(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """scikit-learn's MAP under a unit prior, then the covariance at it."""
    return covariance_at(x, LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky").fit(x, y).coef_[0])


def covariance_at(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The inverse Hessian of the log posterior under a unit prior."""
    p = 1.0 / (1.0 + np.exp(-x @ w))
    hessian = x.T @ ((p * (1.0 - p))[:, None] * x) + np.eye(len(w))
    factor, _ = lapack.dpotrf(hessian)
    return lapack.dpotri(factor)[0]


def numpyro_laplace(x: np.ndarray, y: np.ndarray) -> float:
    """Seconds of AutoLaplaceApproximation by 2,000 Adam steps and the Hessian."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation
    from numpyro.optim import Adam

    guide = AutoLaplaceApproximation(numpyro_model)
    svi = SVI(numpyro_model, guide, Adam(0.05), Trace_ELBO())
    start = time.perf_counter()
    result = svi.run(jax.random.PRNGKey(0), 2000, x, y, progress_bar=False)
    guide.get_posterior(result.params).covariance_matrix.block_until_ready()
    return time.perf_counter() - start


def numpyro_model(x, y):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(x) @ w), obs=y)


def numpyro_until(
    x: np.ndarray, y: np.ndarray, target: float, kind: str = "full", most: int = 20_000
) -> tuple[float, int, float]:
    """Seconds and steps until the ELBO (mean of 200 draws) is within 10 nats of `target`, and the gap then."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
    from numpyro.optim import Adam

    jax.config.update("jax_enable_x64", True)
    guide = {"full": AutoMultivariateNormal, "diagonal": AutoNormal}[kind](numpyro_model)
    svi = SVI(numpyro_model, guide, Adam(0.005), Trace_ELBO())
    judge = Trace_ELBO(num_particles=200)
    state = svi.init(jax.random.PRNGKey(0), x, y)
    many = jax.jit(lambda s: jax.lax.fori_loop(0, 1000, lambda _, t: svi.update(t, x, y)[0], s))
    many(state)
    start, steps, gap = time.perf_counter(), 0, np.inf
    while steps < most and gap > 10.0:
        state, steps = many(state), steps + 1000
        params = svi.get_params(state)
        gap = target + float(judge.loss(jax.random.PRNGKey(1), params, numpyro_model, guide, x, y))
    return time.perf_counter() - start, steps, gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="also run NumPyro, which takes minutes")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(environment("scikit-learn", "numba", "numpyro", "jax"))
    rows = []
    for n, d in SIZES:
        x, y = data(n, d)
        model = LatentLinearModel([GaussianFactor(dim=d), SiteFactor(x, potentials.Logit(y))])
        base, _ = seconds(lambda x=x, y=y: floor(x, y), options.repeats)
        rows.append((f"{n}×{d}", "floor: scikit-learn MAP + Hessian + inverse", base, 1.0, "", ""))
        for engine in ("map", "laplace", "gkl"):
            took, post = seconds(lambda m=model, e=engine: infer(m, e), options.repeats)
            evidence = post.log_evidence if post.evidence_kind != "none" else "–"
            rows.append((f"{n}×{d}", f"latlin {engine}", took, took / base, evidence, f"{post.n_iter} steps"))
        if options.peers:
            took, steps, gap = numpyro_until(x, y, post.log_evidence)
            note = f"{steps} steps, {gap:.1f} nats short; {took / rows[-1][2]:.0f} × latlin gkl"
            rows.append(
                (f"{n}×{d}", "NumPyro AutoMultivariateNormal", took, took / base, -gap + post.log_evidence, note)
            )
            took = numpyro_laplace(x, y)
            rows.append((f"{n}×{d}", "NumPyro AutoLaplaceApproximation", took, took / base, "", "2000 Adam steps"))
    print(table(("N×D", "what", "seconds", "ratio to floor", "log evidence", "note"), rows))


def tasks(size: str) -> list[Task]:
    """Error bars at the mode, then the best Gaussian, full and diagonal, each with the peers that compute the same."""
    sizes, most = {"small": (((4000, 123), (1000, 100)), 5000), "full": (SIZES, 20_000)}[size]
    found = []
    for n, d in sizes:
        case = f"mode and covariance, {n} × {d}"
        found.append(Task(case, "latlin laplace", partial(our_trial, n, d, "laplace")))
        found += [Task(case, name, partial(trial, n, d), package, "peer") for name, (package, trial) in MODES.items()]
        if d == 123:
            found.append(Task(case, "statsmodels GLM, no prior", partial(ml_trial, n, d), "statsmodels", "peer"))
        if d == 123 or size == "full":
            theirs = partial(laplace_trial, n, d)
            found.append(Task(case, "NumPyro AutoLaplaceApproximation", theirs, "numpyro", "peer"))
        case = f"best full Gaussian, {n} × {d}"
        found.append(Task(case, "latlin gkl", partial(our_trial, n, d, "gkl")))
        theirs = partial(svi_trial, n, d, "full", most)
        found.append(Task(case, "NumPyro AutoMultivariateNormal", theirs, "numpyro", "peer"))
    n, d = sizes[0]
    case = f"best diagonal Gaussian, {n} × {d}"
    found.append(Task(case, "latlin gkl, diagonal", partial(our_trial, n, d, GaussianKL(covariance="diagonal"))))
    return [*found, Task(case, "NumPyro AutoNormal", partial(svi_trial, n, d, "diagonal", most), "numpyro", "peer")]


def model_of(x: np.ndarray, y: np.ndarray) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=x.shape[1]), SiteFactor(x, potentials.Logit(y))])


def our_trial(n: int, d: int, engine: Any) -> Trial:
    model = model_of(*data(n, d))
    # a step: the weighted Gram matrix, its factorisation; for Gaussian KL also variances of projections and the
    # inverse, and the same at the start
    step, start = (2.0 * n * d**2 + d**3, 1) if engine == "gkl" else (n * d**2 + d**3 / 3.0, 0)
    return Trial(
        lambda: infer(model, engine),
        lambda post: {"log evidence or bound": post.log_evidence},
        flops=(lambda post: step * (post.n_iter + start)) if engine in ("gkl", "laplace") else None,
    )


def floor_trial(n: int, d: int) -> Trial:
    x, y = data(n, d)
    return Trial(lambda: floor(x, y))


def glum_trial(n: int, d: int) -> Trial:
    from glum import GeneralizedLinearRegressor

    x, y = data(n, d)
    peer = GeneralizedLinearRegressor(family="binomial", alpha=1.0 / n, fit_intercept=False)
    return Trial(lambda: covariance_at(x, peer.fit(x, y.astype(float)).coef_))


def laplace_trial(n: int, d: int) -> Trial:
    x, y = data(n, d)
    return Trial(lambda: numpyro_laplace(x, y))


def ml_trial(n: int, d: int) -> Trial:
    from statsmodels.api import GLM, families

    x, y = data(n, d)
    return Trial(lambda: GLM(y, x, family=families.Binomial()).fit().cov_params())


def svi_trial(n: int, d: int, kind: str, most: int) -> Trial:
    """Compilation is left out of what is compared, as it is for latlin."""
    x, y = data(n, d)
    target = infer(model_of(x, y), GaussianKL(covariance=kind)).log_evidence
    return Trial(
        lambda: numpyro_until(x, y, target, kind, most),
        lambda found: {"log evidence or bound": target - found[2], "steps": str(found[1])},
        cost=lambda found: found[0],
    )


#: peers whose answer is a mode with a covariance
MODES = {
    "scikit-learn newton-cholesky + Hessian": ("scikit-learn", floor_trial),
    "glum + Hessian": ("glum", glum_trial),
}


if __name__ == "__main__":
    run_alone(__file__, main)
