"""NUTS beside deterministic fits: the models of posteriordb in NumPyro, sampled within a time limit.

Each model is written in the parameters that NUTS likes best (effects of groups in units of their scale), and gives the
numbers of the reference by name. Chains run one after the other on one thread; compiling does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import constraints
from numpyro.infer import NUTS

jax.config.update("jax_enable_x64", True)
#: draws after as many for warming up, in each of the chains
CHAINS, WARM_UP, DRAWS = 4, 1_000, 1_000
#: iterations between two looks at the clock
PIECE = 20


class Sampled(NamedTuple):
    """Moments by the reference's names, Monte Carlo errors, processor seconds, and whether to believe them."""

    moments: dict[str, tuple[float, float]]
    mcse: dict[str, float]
    seconds: float
    finished: float
    r_hat: float
    effective: float


def sample(name: str, data: dict[str, Any], limit: float) -> Sampled:
    """Sample within a limit in processor seconds; `finished` is the share of the iterations that were made."""
    kernel = NUTS(partial(MODELS[name], {key: _array(value) for key, value in data.items()}))

    def iterate(state: Any, keep: Any) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, kernel.postprocess_fn((), {})(state.z)

    piece, chains, spent = None, [], 0.0
    for chain in range(CHAINS):
        state = kernel.init(jax.random.key(chain), WARM_UP, None, (), {})
        if piece is None:
            piece = jax.jit(partial(jax.lax.scan, iterate, xs=None, length=PIECE)).lower(state).compile()
        kept = []
        for k in range((WARM_UP + DRAWS) // PIECE):
            start = time.process_time()
            state, values = jax.block_until_ready(piece(state))
            spent += time.process_time() - start
            if k >= WARM_UP // PIECE:
                kept.append({key: np.asarray(value) for key, value in values.items()})
            if spent > limit:
                made = chain + (k + 1) * PIECE / (WARM_UP + DRAWS)
                return Sampled({}, {}, spent, made / CHAINS, np.nan, np.nan)
        chains.append({key: np.concatenate([values[key] for values in kept]) for key in kept[0]})
    return _summed(chains, spent)


def _summed(chains: list[dict[str, np.ndarray]], seconds: float) -> Sampled:
    moments, mcse, r_hat, effective = {}, {}, 1.0, np.inf
    for key in chains[0]:
        draws = np.stack([chain[key] for chain in chains])
        single = draws.ndim == 2
        flat = draws.reshape(*draws.shape[:2], -1)
        counts = np.ravel(effective_sample_size(flat))
        for j in range(flat.shape[2]):
            place = key if single else f"{key}[{j + 1}]"
            moments[place] = (float(flat[..., j].mean()), float(flat[..., j].std(ddof=1)))
            mcse[place] = moments[place][1] / float(np.sqrt(counts[j]))
        r_hat = max(r_hat, float(np.nanmax(split_gelman_rubin(flat))))
        effective = min(effective, float(np.nanmin(counts)))
    return Sampled(moments, mcse, seconds, 1.0, r_hat, effective)


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value


# --- the models ---------------------------------------------------------------------------------------------------


def _flat(name: str, *shape: int) -> Any:
    return numpyro.sample(name, dist.ImproperUniform(constraints.real, (), shape))


def _positive(name: str) -> Any:
    return numpyro.sample(name, dist.ImproperUniform(constraints.positive, (), ()))


def _normal(name: str, sd: float, *shape: int) -> Any:
    return numpyro.sample(name, dist.Normal(0.0, sd).expand(shape).to_event(len(shape)))


def _effects(name: str, scale: Any, count: int) -> Any:
    """Independent effects of groups, sampled in units of their scale."""
    return numpyro.deterministic(name, scale * _normal(f"{name}_units", 1.0, count))


def _linear(y: Any, columns: list[Any], scale: Callable[[], Any]) -> None:
    X = np.column_stack([np.ones(len(y)), *columns])
    beta, sigma = _flat("beta", X.shape[1]), scale()
    numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def eight_schools(data: dict[str, Any]) -> None:
    mu, tau = _normal("mu", 5.0), numpyro.sample("tau", dist.HalfCauchy(5.0))
    theta = numpyro.deterministic("theta", mu + tau * _normal("units", 1.0, data["J"]))
    numpyro.sample("y", dist.Normal(theta, data["sigma"]), obs=data["y"])


def kidiq(data: dict[str, Any]) -> None:
    columns = [data["mom_hs"], data["mom_iq"]]
    _linear(data["kid_score"], columns, lambda: numpyro.sample("sigma", dist.HalfCauchy(2.5)))


def mesquite(data: dict[str, Any]) -> None:
    names = ("diam1", "diam2", "canopy_height", "total_height", "density")
    columns = [*(np.log(data[name]) for name in names), data["group"]]
    _linear(np.log(data["weight"]), columns, lambda: _positive("sigma"))


def nes(data: dict[str, Any]) -> None:
    age = [(data["age_discrete"] == k).astype(float) for k in (2, 3, 4)]
    columns = [data["real_ideo"], data["race_adj"], *age, data["educ1"], data["gender"], data["income"]]
    _linear(data["partyid7"], columns, lambda: _positive("sigma"))


def glmm_poisson(data: dict[str, Any]) -> None:
    year = np.asarray(data["year"], float)
    alpha = numpyro.sample("alpha", dist.Uniform(-20.0, 20.0))
    slopes = [numpyro.sample(f"beta{k}", dist.Uniform(-10.0, 10.0)) for k in (1, 2, 3)]
    eps = _effects("eps", numpyro.sample("sigma", dist.Uniform(0.0, 5.0)), len(year))
    rate = alpha + sum(b * year ** (k + 1) for k, b in enumerate(slopes)) + eps
    numpyro.sample("C", dist.Poisson(jnp.exp(rate)), obs=data["C"])


def glm_binomial(data: dict[str, Any]) -> None:
    year = np.asarray(data["year"], float)
    b0, b1, b2 = (_normal(f"b{k}", 100.0) for k in range(3))
    numpyro.sample("C", dist.Binomial(data["N"], logits=b0 + b1 * year + b2 * year**2), obs=data["C"])


def seeds(data: dict[str, Any]) -> None:
    x1, x2 = data["x1"], data["x2"]
    a0, a1, a2, a12 = (_normal(name, 1.0) for name in ("alpha0", "alpha1", "alpha2", "alpha12"))
    c = _effects("c", numpyro.sample("sigma", dist.HalfCauchy(1.0)), data["I"])
    b = numpyro.deterministic("b", c - c.mean())
    numpyro.sample("n", dist.Binomial(data["N"], logits=a0 + a1 * x1 + a2 * x2 + a12 * x1 * x2 + b), obs=data["n"])


def radon_mn(data: dict[str, Any]) -> None:
    mu, sa = _normal("mu_alpha", 10.0), numpyro.sample("sigma_alpha", dist.HalfNormal(1.0))
    alpha = numpyro.sample("alpha", dist.Normal(mu, sa).expand([int(np.max(data["county_idx"]))]).to_event(1))
    sigma = numpyro.sample("sigma_y", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(alpha[data["county_idx"] - 1], sigma), obs=data["log_radon"])


def radon_all(data: dict[str, Any]) -> None:
    mu, b1, b2 = (_normal(name, 10.0) for name in ("Intercept", "log_uppm", "floor_measure"))
    sa = numpyro.sample("sd(county_idx)", dist.HalfNormal(1.0))
    counties = int(np.max(data["county_idx"]))
    alpha = mu + sa * _normal("units", 1.0, counties)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    eta = alpha[data["county_idx"] - 1] + b1 * data["log_uppm"] + b2 * data["floor_measure"]
    numpyro.sample("y", dist.Normal(eta, sigma), obs=data["log_radon"])


def rats(data: dict[str, Any]) -> None:
    x, rat = np.asarray(data["x"], float) - data["xbar"], np.asarray(data["rat"]) - 1
    count = int(rat.max()) + 1
    mean, slope = _normal("Intercept", 100.0), _normal("x", 100.0)
    a = numpyro.sample("a", dist.Normal(mean, _positive("sd(rat)")).expand([count]).to_event(1))
    b = numpyro.sample("b", dist.Normal(slope, _positive("sd(rat:x)")).expand([count]).to_event(1))
    numpyro.sample("y", dist.Normal(a[rat] + b[rat] * x, _positive("sigma")), obs=data["y"])


def wells(data: dict[str, Any]) -> None:
    b0, b1, b2 = (_flat(f"b{k}") for k in range(3))
    eta = b0 + b1 * np.asarray(data["dist"]) / 100.0 + b2 * data["arsenic"]
    numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data["switched"])


def wells_inter(data: dict[str, Any]) -> None:
    columns = [np.asarray(data["dist"]) / 100.0, np.asarray(data["arsenic"]), np.asarray(data["educ"]) / 4.0]
    d, a, e = (np.asarray(x, float) - np.mean(x) for x in columns)
    X = np.column_stack([np.ones(len(d)), d, a, e, d * a, d * e, a * e])
    b = jnp.stack([_flat(f"b{k}") for k in range(7)])
    numpyro.sample("y", dist.Bernoulli(logits=X @ b), obs=data["switched"])


def poisson_process(data: dict[str, Any]) -> None:
    x = np.asarray(data["x"], float)
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    K = alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 1e-10 * np.eye(len(x))
    f = numpyro.deterministic("f", jnp.linalg.cholesky(K) @ _normal("units", 1.0, len(x)))
    numpyro.sample("k", dist.Poisson(jnp.exp(f)), obs=data["k"])


def election(data: dict[str, Any]) -> None:
    names = ("Intercept", "black", "female", "v_prev_full", "both")
    b = {name: _normal(name, 100.0) for name in names}
    eta = b["Intercept"] + b["both"] * data["female"] * data["black"]
    eta += sum(b[name] * data[name] for name in names[1:4])
    for group in ("age", "edu", "age_edu", "state", "region_full"):
        label = np.unique(data[group], return_inverse=True)[1]
        scale = numpyro.sample(f"sd({group})", dist.Uniform(0.0, 100.0))
        eta += scale * _normal(f"units of {group}", 1.0, int(label.max()) + 1)[label]
    numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data["y"])


def new_york(data: dict[str, Any]) -> None:
    first, second, areas = data["node1"] - 1, data["node2"] - 1, data["N"]
    b0, sigma = _normal("Intercept", 1.0), numpyro.sample("sd(bym2(area))", dist.HalfNormal(1.0))
    rho = numpyro.sample("rho(bym2(area))", dist.Beta(0.5, 0.5))
    theta, phi = _normal("theta", 1.0, areas), _flat("phi", areas)
    # the intrinsic autoregression, its sum held near zero
    numpyro.factor("neighbours", -0.5 * jnp.sum((phi[first] - phi[second]) ** 2))
    numpyro.factor("sum", dist.Normal(0.0, 0.001 * areas).log_prob(phi.sum()))
    field = sigma * (jnp.sqrt(1.0 - rho) * theta + jnp.sqrt(rho / data["scaling_factor"]) * phi)
    rate = jnp.exp(b0 + field) * np.asarray(data["E"], float)
    numpyro.sample("y", dist.Poisson(rate), obs=data["y"])


MODELS: dict[str, Callable[[dict[str, Any]], None]] = {
    "eight_schools": eight_schools,
    "kidiq": kidiq,
    "mesquite": mesquite,
    "nes1972": nes,
    "glmm_poisson": glmm_poisson,
    "glm_binomial": glm_binomial,
    "seeds": seeds,
    "radon_mn": radon_mn,
    "wells": wells,
    "wells_inter": wells_inter,
    "gp_pois_regr": poisson_process,
    "election88": election,
    "radon_all": radon_all,
    "rats": rats,
    "new_york": new_york,
}
