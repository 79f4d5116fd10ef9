"""A Gaussian process on a line by its state space: exact, for every engine and likelihood, in O(N).

Matérn kernels on one input are Gauss–Markov chains over the sorted distinct inputs; the latent
function is seen through one entry of their states. Means, variances, evidence and its gradient are those of the exact
process, by passes along the chain. Between and beyond the inputs the chain goes on: a new input is one more state,
with the filtered moments (m, P) of the state before and the smoother's (r, N) of the state after,

    m⁻ = Φm,   P⁻ = ΦPΦᵀ + W,   r⁺ = Φ'ᵀr,   N⁺ = Φ'ᵀNΦ',   E x = m⁻ + P⁻r⁺,   Var x = P⁻ − P⁻N⁺P⁻.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import factorial, gammainc
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, Product, Sum

from latlin.densities.chain import Chain, ChainCovariance, SmoothedChain, smooth, sum_by_state
from latlin.gp.approximation import LatentFunction
from latlin.gp.kernels import Columns
from latlin.gp.latent import accuracy_for, leave_one_out_density, require_sites, warm_start
from latlin.gp.setting import Setting
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.forms.chain import ChainFactor
from latlin.inference.infer import infer
from latlin.inference.model import LatentLinearModel, SiteFactor, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.chain_kernels import chain_slopes
from latlin.numerics.stored import are_places, storable, storable_by_arguments
from latlin.potentials.base import Potential

# --- Sums of Matérn kernels on a line as Gauss–Markov chains, with derivatives in their parameters.
#
# A Matérn process of smoothness ν = p + ½ and length ℓ is the first entry of a Markov state of p + 1 derivatives
# (Hartikainen and Särkkä 2010). In the time s = λΔ, λ = √(2ν)/ℓ, and with derivatives in that unit, all depends on s:
#
#     Φ(s) = exp(Fs),   W(s) = q ∫₀ˢ φ(τ)φ(τ)ᵀdτ,   φ(τ) = Φ(τ)e_p,   dΦ/ds = FΦ,   dW/ds = q φ(s)φ(s)ᵀ,
#
# times the variance. The integrals of e^−2τ τᵏ are incomplete gamma functions, so short steps cost no digits.


class Shape(NamedTuple):
    """A Matérn process in its own time: F, the stationary covariance, q, and φ(τ)eᵗ as polynomials (rows)."""

    F: Array
    stationary: Array
    q: float
    push: Array


SHAPES: dict[float, Shape] = {
    0.5: Shape(np.array([[-1.0]]), np.array([[1.0]]), 2.0, np.array([[1.0]])),
    1.5: Shape(np.array([[0.0, 1.0], [-1.0, -2.0]]), np.eye(2), 4.0, np.array([[0.0, 1.0], [1.0, -1.0]])),
    2.5: Shape(
        np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -3.0, -3.0]]),
        np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]]),
        16.0 / 3.0,
        np.array([[0.0, 0.0, 0.5], [0.0, 1.0, -0.5], [1.0, -2.0, 0.5]]),
    ),
}


class MaternPart(NamedTuple):
    """One Matérn process: its smoothness, length and variance, and which free parameters these are.

    Parameters
    ----------
    nu, length, variance : float
    by_variance : tuple of int
        Places in `kernel.theta` of the factors of the variance.
    by_length : int or None
    """

    nu: float
    length: float
    variance: float
    by_variance: tuple[int, ...]
    by_length: int | None

    @property
    def rate(self) -> float:
        """λ = √(2ν)/ℓ."""
        return float(np.sqrt(2.0 * self.nu)) / self.length


def parts_of(kernel: Any) -> list[MaternPart]:
    """The Matérn processes whose sum a kernel is; a ValueError where it is no such sum."""
    found, used = _walk(kernel, 0)
    assert used == kernel.n_dims
    return found


def _walk(kernel: Any, first: int) -> tuple[list[MaternPart], int]:
    """Parts of a kernel whose free parameters begin at a place, and where they end."""
    if isinstance(kernel, Columns):
        return _walk(kernel.kernel, first)
    if isinstance(kernel, Matern) and kernel.nu in SHAPES and np.size(kernel.length_scale) == 1:
        free = not kernel.hyperparameter_length_scale.fixed
        part = MaternPart(kernel.nu, float(np.ravel(kernel.length_scale)[0]), 1.0, (), first if free else None)
        return [part], first + free
    if isinstance(kernel, Sum):
        one, split = _walk(kernel.k1, first)
        other, last = _walk(kernel.k2, split)
        return one + other, last
    if isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel):
        free = not kernel.k1.hyperparameter_constant_value.fixed
        inner, last = _walk(kernel.k2, first + free)
        return [_scaled(part, kernel.k1, first, free) for part in inner], last
    if isinstance(kernel, Product) and isinstance(kernel.k2, ConstantKernel):
        inner, split = _walk(kernel.k1, first)
        free = not kernel.k2.hyperparameter_constant_value.fixed
        return [_scaled(part, kernel.k2, split, free) for part in inner], split + free
    raise ValueError(
        "a state space on a line needs a sum of Matern kernels (nu 0.5, 1.5 or 2.5) times constants, "
        f"got {kernel!r:.120}"
    )


def _scaled(part: MaternPart, constant: Any, place: int, free: bool) -> MaternPart:
    own = (*part.by_variance, place) if free else part.by_variance
    return part._replace(variance=part.variance * float(constant.constant_value), by_variance=own)


def transitions(part: MaternPart, spacing: Array) -> tuple[Array, Array]:
    """Φ and W over steps of some length, of shape (n, d, d)."""
    shape, s = SHAPES[part.nu], part.rate * spacing
    width = len(shape.F)
    nilpotent = shape.F + np.eye(width)
    # exp(Fs) = e⁻ˢ Σ_k (F + I)ᵏsᵏ/k!
    phi, power = np.zeros((len(s), width, width)), np.eye(width)
    for k in range(width):
        phi += (np.exp(-s) * s**k / factorial(k))[:, None, None] * power
        power = power @ nilpotent
    # ∫₀ˢ e^−2τ τᵏ dτ = k! P(k + 1, 2s)/2ᵏ⁺¹
    moments = [gammainc(k + 1, 2.0 * s) * factorial(k) / 2.0 ** (k + 1) for k in range(2 * width - 1)]
    W = np.zeros_like(phi)
    for i in range(width):
        for j in range(width):
            products = np.convolve(shape.push[i], shape.push[j])
            W[:, i, j] = sum(c * moment for c, moment in zip(products, moments, strict=True))
    return phi, part.variance * shape.q * W


def length_slopes(part: MaternPart, spacing: Array, phi: Array) -> tuple[Array, Array]:
    """∂Φ/∂log ℓ and ∂W/∂log ℓ, with ∂s/∂log ℓ = −s."""
    shape, s = SHAPES[part.nu], part.rate * spacing
    push = np.exp(-s)[:, None] * (s[:, None] ** np.arange(len(shape.F))) @ shape.push.T
    d_phi = -s[:, None, None] * (shape.F @ phi)
    d_W = -(part.variance * shape.q * s)[:, None, None] * push[:, :, None] * push[:, None, :]
    return d_phi, d_W


def stationary(part: MaternPart) -> Array:
    """The covariance of a state without neighbours."""
    return part.variance * SHAPES[part.nu].stationary


def blocks_of(parts: list[MaternPart]) -> list[slice]:
    """Where the states of the parts stand in a state of their sum."""
    edges = np.cumsum([0, *(len(SHAPES[part.nu].F) for part in parts)])
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


def steps_between(parts: list[MaternPart], spacing: Array) -> tuple[Array, Array]:
    """Φ and W of the sum of parts."""
    spans = blocks_of(parts)
    width = spans[-1].stop
    phi, W = np.zeros((len(spacing), width, width)), np.zeros((len(spacing), width, width))
    for part, span in zip(parts, spans, strict=True):
        phi[:, span, span], W[:, span, span] = transitions(part, spacing)
    return phi, W


def chain_of(parts: list[MaternPart], times: Array) -> Chain:
    """The chain of a sum of Matérn processes at increasing times."""
    spacing = np.diff(times)
    # regular times have few different steps
    distinct, which = np.unique(spacing, return_inverse=True)
    phi, W = steps_between(parts, distinct)
    first = np.zeros((1, *phi.shape[1:]))
    h = np.zeros(phi.shape[1])
    for part, span in zip(parts, blocks_of(parts), strict=True):
        first[0, span, span] = stationary(part)
        h[span.start] = 1.0
    return Chain(np.concatenate([np.zeros_like(first), phi[which]]), np.concatenate([first, W[which]]), h)


def pull_back(parts: list[MaternPart], times: Array, chain: Chain, by_w: Array, by_phi: Array, count: int) -> Array:
    """∂ log Z/∂θ of `count` free parameters from ∂ log Z/∂W_t and ∂ log Z/∂Φ_t."""
    total, spacing = np.zeros(count), np.diff(times)
    for part, span in zip(parts, blocks_of(parts), strict=True):
        inside = (slice(None), span, span)
        for place in part.by_variance:
            total[place] += np.sum(by_w[inside] * chain.W[inside])
        if part.by_length is not None:
            own = chain.phi[inside][1:]
            d_phi, d_W = length_slopes(part, spacing, own)
            total[part.by_length] += np.sum(by_phi[inside][1:] * d_phi) + np.sum(by_w[inside][1:] * d_W)
    return total


#: rows of the run that a first search for the parameters is made on, and how many times as many there must be
RUN, MANY = 3000, 3


@storable_by_arguments
@dataclass(frozen=True)
class StateSpace:
    """The exact process on a line, for sums of Matérn kernels (½, 3/2, 5/2) times constants.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import Matern
    >>> from latlin.gp import GaussianProcessRegressor
    >>> t = np.linspace(0.0, 6.0, 3000)[:, None]
    >>> model = GaussianProcessRegressor(Matern(nu=1.5), approximation=StateSpace()).fit(t, np.sin(t[:, 0]))
    >>> bool(abs(model.predict([[3.0005]])[0] - np.sin(3.0005)) < 1e-4)
    True
    """

    name: ClassVar[str] = "state-space"

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """One column and a sum of Matérn kernels are needed."""
        if n_columns != 1:
            return f"a state space is for one column of inputs, got {n_columns}"
        try:
            parts_of(setting.kernel)
        except ValueError as error:
            return str(error)
        return ""

    def longest_product(self, n_rows: int) -> float:
        """None that threads pay for: passes along the line choose their own."""
        return 0.0

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> StateSpaceFitter:
        """Inputs sorted; of many rows first a run of them, which says where the parameters are."""
        if len(X) < MANY * RUN or not len(setting.theta):
            return _sorted(X, y, engine)
        middle = np.argsort(X[:, 0], kind="stable")[(len(X) - RUN) // 2 :][:RUN]
        return replace(_sorted(X[middle], y[middle], engine), larger=(X, y))


def _sorted(X: Array, y: Array, engine: Engine) -> StateSpaceFitter:
    times, state = np.unique(X[:, 0], return_inverse=True)
    return StateSpaceFitter(X, y, engine, times, state.ravel())


@storable
@dataclass(frozen=True)
class StateSpaceFitter:
    """Training rows on a line.

    Parameters
    ----------
    X : ndarray of shape (n, 1)
    y : ndarray of shape (n,)
    engine : Engine
    times : ndarray of shape (T,)
        Distinct inputs, increasing.
    state : ndarray of int, shape (n,)
        Which of them every row has.
    larger : tuple of ndarray or None
        X and y of all rows, where these are a run of them.
    """

    X: Array
    y: Array
    engine: Engine
    times: Array
    state: NDArray[np.int64]
    larger: tuple[Array, Array] | None = None

    @property
    def accuracy(self) -> float:
        """Relative change of the evidence at which a search ends."""
        return accuracy_for(len(self.X))

    def fit(self, setting: Setting, start: LatentFunction | None = None, verbose: bool = False) -> StateSpaceLatent:
        """The posterior at fixed parameters."""
        model = model_of(setting, self.times, self.state, setting.likelihood.observe(self.y))
        posterior = require_sites(infer(model, self.engine, start=warm_start(start, model), verbose=verbose))
        return StateSpaceLatent(setting, self.times, self.state, posterior)

    def fit_with_gradient(
        self, setting: Setting, start: LatentFunction | None = None
    ) -> tuple[StateSpaceLatent, Array]:
        """The posterior at fixed parameters, and ∂ log evidence/∂theta."""
        latent = self.fit(setting, start)
        return latent, self.gradient(latent)

    def gradient(self, latent: StateSpaceLatent) -> Array:
        """∂ log evidence/∂theta at a posterior of `fit`."""
        setting, found = latent.setting, evidence_gradient(latent.posterior)
        chain, moments = latent.prior.chain, latent.smoothed
        term = latent.posterior.evidence_term
        moved = None if term is None else term.movement(latent.posterior)
        mu, rho = np.zeros_like(moments.m), np.zeros_like(moments.r)
        if moved is not None:
            pulled = smooth(chain, latent.gamma, sum_by_state(moved.pull, self.state, len(self.times)))
            assert pulled is not None  # the fit has been there
            mu, rho = pulled.m, pulled.r
        by_w, by_phi = chain_slopes(chain.phi, moments.m, moments.P, moments.r, moments.N, mu, rho)
        own = pull_back(latent.parts, self.times, chain, by_w, by_phi, setting.kernel.n_dims)
        return np.concatenate([own, setting.likelihood.pull(found.sites[0])])

    def refined(self, latent: LatentFunction) -> StateSpaceFitter | None:
        """All rows after a run of them."""
        return None if self.larger is None else _sorted(*self.larger, self.engine)


def model_of(setting: Setting, times: Array, state: NDArray[np.int64], potential: Potential) -> LatentLinearModel:
    """The chain of the kernel and the sites on its states."""
    if not are_places(state, len(times)):
        raise ValueError(f"state must hold places among {len(times)} times")
    chain = chain_of(scaled_parts(setting), times)
    mean = np.zeros((chain.steps, chain.width))
    mean[:, 0] = setting.mean
    seen = np.flatnonzero(chain.h)
    indices = (state[:, None] * chain.width + seen).ravel()
    indptr = len(seen) * np.arange(len(state) + 1)
    rows = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(state), chain.dim))
    return LatentLinearModel([ChainFactor(chain, mean.ravel()), SiteFactor(rows, potential)])


def scaled_parts(setting: Setting) -> list[MaternPart]:
    """The parts of the kernel in the units of the latent function."""
    return [part._replace(variance=setting.amplitude**2 * part.variance) for part in parts_of(setting.kernel)]


@dataclass(frozen=True)
class StateSpaceLatent:
    """The posterior over the states at the training inputs, carried to others.

    Parameters
    ----------
    setting : Setting
    times : ndarray of shape (T,)
    state : ndarray of int, shape (n,)
    posterior : Posterior
        Its coordinates are the states.
    """

    setting: Setting
    times: Array
    state: NDArray[np.int64]
    posterior: Posterior

    @property
    def jitter(self) -> float:
        return 0.0

    @cached_property
    def parts(self) -> list[MaternPart]:
        """The Matérn processes."""
        return scaled_parts(self.setting)

    @property
    def prior(self) -> ChainFactor:
        """The prior of the states."""
        factor: Any = require_in_memory(self.posterior.model).gaussians[0]
        return factor

    @property
    def factor(self) -> SiteFactor:
        """The sites of the training targets."""
        return require_in_memory(self.posterior.model).sites[0]

    @cached_property
    def gamma(self) -> Array:
        """Total precision of the sites on every state."""
        assert self.posterior.sites is not None  # `fit` checks it
        return sum_by_state(self.posterior.sites.gamma, self.state, len(self.times))

    @cached_property
    def smoothed(self) -> SmoothedChain:
        """Moments of the states."""
        assert self.posterior.sites is not None  # `fit` checks it
        nu = sum_by_state(self.posterior.sites.nu, self.state, len(self.times))
        found = smooth(self.prior.chain, self.gamma, nu)
        assert found is not None  # the fit has been there
        return found

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        return self.marginals(new)[0]

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs: each is one more state of the chain."""
        before, spread, back, bent = self._about(new[:, 0])
        h = self.prior.chain.h
        seen = spread @ h
        mean = before @ h + np.einsum("ni,ni->n", seen, back)
        variance = seen @ h - np.einsum("ni,nij,nj->n", seen, bent, seen)
        return self.setting.mean + mean, np.maximum(variance, 0.0)

    def _about(self, t: Array) -> tuple[Array, Array, Array, Array]:
        """m⁻ and P⁻ from the states before, r⁺ and N⁺ from those after."""
        found, last = self.smoothed, len(self.times) - 1
        left = np.searchsorted(self.times, t, side="right") - 1
        right = left + 1
        phi, W = steps_between(self.parts, np.where(left >= 0, t - self.times[np.maximum(left, 0)], 0.0))
        old, known = np.maximum(left, 0), (left >= 0)[:, None]
        before = np.where(known, np.einsum("nij,nj->ni", phi, found.m[old]), 0.0)
        spread = np.where(known[:, :, None], phi @ found.P[old] @ np.swapaxes(phi, 1, 2) + W, self.prior.chain.W[0])
        ahead, inside = np.minimum(right, last), (right <= last)[:, None]
        phi, _ = steps_between(self.parts, np.where(right <= last, self.times[ahead] - t, 0.0))
        turned = np.swapaxes(phi, 1, 2)
        back = np.where(inside, np.einsum("nij,nj->ni", turned, found.r[ahead]), 0.0)
        bent = np.where(inside[:, :, None], turned @ found.N[ahead] @ phi, 0.0)
        return before, spread, back, bent

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs: they become states without sites, one pass for each."""
        times, place = np.unique(np.concatenate([self.times, new[:, 0]]), return_inverse=True)
        gamma = sum_by_state(self.gamma, place[: len(self.times)], len(times))
        chain, state = chain_of(self.parts, times), place[len(self.times) :]
        pulls = np.zeros((len(state), chain.steps, chain.width))
        pulls[np.arange(len(state)), state] = chain.h
        flat = pulls.reshape(len(state), -1)
        covariance = flat @ ChainCovariance(chain, gamma).times(flat.T)
        return 0.5 * (covariance + covariance.T)

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y); see `Latent.leave_one_out`."""
        found, sites = self.smoothed, self.posterior.sites
        assert sites is not None  # `fit` checks it
        x = (found.x @ self.prior.chain.h)[self.state]
        return leave_one_out_density(self.factor.potential, sites, x, found.variance[self.state], self.setting.mean)

    def with_posterior(self, posterior: Posterior) -> StateSpaceLatent:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)
