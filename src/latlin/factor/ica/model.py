"""Noisy independent components: x = Az + ε with heavy-tailed sources; the bound and the updates of q(A, Ψ).

    z_k | u_k ~ N(0, s_k²/u_k),  x_d | z ~ N(A_dᵀz, ψ_d),  A_d | ψ_d ~ N(0, ψ_d diag(γ)⁻¹),  ψ_d⁻¹ ~ Gamma(a₀, b₀)

Lau (2020), §2. A row of A and its noise are a Bayesian linear regression of x_d on the sources (13)–(18,
corrected): q(A_d, ψ_d) is normal-inverse-gamma,

    V = (diag γ + R)⁻¹,  m_d = V t_d,  a = a₀ + N/2,  b_d = b₀ + ½(Σx_d² − m_dᵀV⁻¹m_d),   R = Σ⟨zzᵀ⟩,  t_d = Σ x_d⟨z⟩.

a₀ and b₀ are learnt: with few sensors more than sources the data hardly tell one noise variance from another, and alike
ones are drawn together. The sources see the row through exp(−½zᵀGz + bᵀz), G = Σ_d ⟨ψ_d⁻¹⟩ m_d m_dᵀ + DV and b = Σ_d
⟨ψ_d⁻¹⟩ m_d x_d. The rows are centred.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.optimize import minimize_scalar
from scipy.special import betaln, digamma, gammaln, polygamma

from latlin.densities.conjugate import gamma_kl
from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.linalg import Array, cholesky

# --- Source densities that are Gaussian scale mixtures: z | u ~ N(0, s²/u), u from a mixing density.
#
# Lau (2020), §2.1 has Student's t, u ~ Gamma(α/2, α/2) with α degrees of freedom; the Laplace density ½e^{−|z|}
# is the mixture with 1/u ~ Exponential(rate ½). The scale s is free: it takes up what the mixing matrix leaves, and
# without it EM would move the scale of a source only at the rate of the noise.
#
# With q(z) and q(u) independent, q(u) at its best depends on ⟨z²⟩ alone, and what the bound gains from a source is
# f(⟨z²⟩) = log p(√⟨z²⟩); the precision it lends to q(z) is ⟨u⟩/s² = −2f′. With u kept together with z, a grid over
# log u serves both families.

#: degrees of freedom are kept between these; the upper is a Gaussian for any practical purpose
DF_RANGE = (0.3, 1000.0)
#: largest α of a source whose scale is √(2/α)
LARGEST_RATE_ONE = 1e6
#: terms below exp(−CUT) of the largest are left out
CUT = 40.0


class ScaleGrid(NamedTuple):
    """Nodes t = log u, equally spaced, and the log weights of the mixing density there."""

    log_u: Array
    log_weight: Array


class SourceFamily(Protocol):
    """A Gaussian scale mixture with a shape and a scale."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        """f(⟨z²⟩) = log p(√⟨z²⟩)."""

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        """⟨u⟩/s² = −2 f′(⟨z²⟩)."""

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        """A shape (when it is learnt) and a scale with a higher Σ f(⟨z²⟩)."""

    def grid(self, shape: float, largest: float) -> ScaleGrid:
        """Nodes that serve every z with z²/s² up to `largest`."""

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        """argmax of ⟨log p(u | shape)⟩ given averages over the observations: (21), summed over them."""


class StudentTSource:
    """t with `shape` degrees of freedom."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        r = square / (shape * scale**2)
        constant = -betaln(0.5 * shape, 0.5) - 0.5 * np.log(shape) - np.log(scale)
        return constant - 0.5 * (shape + 1.0) * np.log1p(r)

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        return (shape + 1.0) / (shape * scale**2 + square)

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        # s² ← Σ w z² / Σ w with w = ⟨u⟩: EM with its scale expanded
        w = self.precision(square, shape, scale)
        scale = float(np.sqrt((w @ square) / w.sum()))
        return (self._climb(square / scale**2, shape) if learn else shape), scale

    def _climb(self, r: Array, shape: float) -> float:
        """One safeguarded Newton step in log α."""
        n = len(r)
        value = float(self.log_density(r, shape, 1.0).sum())
        rest = shape + r
        slope = 0.5 * n * (digamma(0.5 * (shape + 1.0)) - digamma(0.5 * shape) + np.log(shape) + 1.0)
        slope += -0.5 * np.log(rest).sum() - 0.5 * (shape + 1.0) * (1.0 / rest).sum()
        bend = 0.25 * n * (polygamma(1, 0.5 * (shape + 1.0)) - polygamma(1, 0.5 * shape)) + 0.5 * n / shape
        bend += -(1.0 / rest).sum() + 0.5 * (shape + 1.0) * (1.0 / rest**2).sum()
        first, second = shape * slope, shape**2 * bend + shape * slope
        step = np.clip(-first / second if second < 0.0 else np.sign(first), -1.0, 1.0)
        for _ in range(8):
            new = float(np.clip(shape * np.exp(step), *DF_RANGE))
            if float(self.log_density(r, new, 1.0).sum()) >= value:
                return new
            step *= 0.3
        return shape

    def grid(self, shape: float, largest: float) -> ScaleGrid:
        # left of its peak the table falls like e^{(α+1)t/2}, right of it like exp(−αu/2)
        peak = min(0.0, float(np.log((shape + 1.0) / (shape + largest))))
        low = peak - 2.0 * CUT / (shape + 1.0) - 2.0
        high = float(np.log1p(2.0 * CUT / shape + 2.0 * np.sqrt(2.0 * CUT / shape)))
        step = min(0.3, 0.6 * np.sqrt(2.0 / (shape + 1.0)))
        t = np.arange(low, high + step, step)
        half = 0.5 * shape
        return ScaleGrid(t, half * np.log(half) - gammaln(half) + half * t - half * np.exp(t) + np.log(step))

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        # log(α/2) + 1 − ψ(α/2) + ⟨log u⟩ − ⟨u⟩ = 0 falls in α: bisection in log α
        low, high = np.log(DF_RANGE)
        target = mean_log_u - mean_u + 1.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            half = 0.5 * np.exp(middle)
            low, high = (middle, high) if np.log(half) - digamma(half) + target > 0.0 else (low, middle)
        return float(np.exp(0.5 * (low + high)))


class RateOneSource(StudentTSource):
    """u ~ Gamma(α/2, 1), Lau (2020), eq. 22: t with α degrees of freedom and the scale √(2/α).

    The scale goes to zero as α → ∞. With one prior for all columns of A a superfluous source is recognised by its α,
    which grows without end.
    """

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        if not learn:
            return shape, float(np.sqrt(2.0 / shape))

        def loss(log_shape: float) -> float:
            here = float(np.exp(log_shape))
            return -float(self.log_density(square, here, float(np.sqrt(2.0 / here))).sum())

        found = minimize_scalar(loss, bounds=np.log((DF_RANGE[0], LARGEST_RATE_ONE)), method="bounded")
        best = float(np.exp(found.x)) if found.fun <= loss(float(np.log(shape))) else shape
        return best, float(np.sqrt(2.0 / best))


class LaplaceSource:
    """Laplace; it has no shape."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        return -np.log(2.0 * scale) - np.sqrt(square) / scale

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        return 1.0 / (scale * np.sqrt(np.maximum(square, 1e-300)))

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        return shape, float(np.sqrt(square).mean())

    def grid(self, shape: float, largest: float) -> ScaleGrid:
        # v = 1/u has the density ½e^{−v/2}; in t = −log v it falls like e^{−t} on the right
        low = -float(np.log(2.0 * CUT + 2.0 * np.sqrt(largest))) - 1.0
        t = np.arange(low, CUT, 0.2)
        return ScaleGrid(t, -t - 0.5 * np.exp(-t) + np.log(0.5 * 0.2))

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        return shape


FAMILIES: dict[str, SourceFamily] = {"student-t": StudentTSource(), "laplace": LaplaceSource()}


#: the prior precision of a useless source, in units of the precision that the data would give it
DEAD = 1e6
#: least a₀, and the largest in observations
LEAST_SHAPE, MOST_SHAPE = 1e-2, 10.0
#: least noise variance, as a share of the feature's variance
NOISE_FLOOR = 1e-8


class IcaData(NamedTuple):
    """Centred rows and their sums of squares by feature."""

    rows: Array
    squares: Array


class SourceModel(NamedTuple):
    """The family of the sources and whether its shapes are learnt."""

    family: SourceFamily
    learn: bool


class IcaState(NamedTuple):
    """q(z, u) by its moments, q(A, Ψ), and the parameters."""

    means: Array  # ⟨z⟩, N×K
    squares: Array  # ⟨z²⟩, N×K
    second: Array  # R, K×K
    product: Array  # the t_d, K×D
    scale_moments: Array  # means over n of ⟨u⟩, ⟨log u⟩, ⟨uz²⟩, 3×K; only where u is kept with z
    prior: Array  # ⟨log p(z, u)⟩ summed over n, plus the entropy of what is kept with each source, K
    entropy: float  # the entropy of q(z) where it is joint
    mixing: Array  # m, D×K
    spread: Array  # V, K×K
    noise_shape: float  # a
    noise_rate: Array  # b, D
    prior_shape: float  # a₀
    prior_rate: float  # b₀
    relevance: Array  # γ, K
    shape: Array  # of the sources, K
    scale: Array  # s, K

    @property
    def noise_precision(self) -> Array:
        """⟨ψ_d⁻¹⟩ = a/b_d."""
        return self.noise_shape / self.noise_rate


class SourceEngine(Protocol):
    """A factorisation of q(z, u) and how it is inferred."""

    def infer(self, data: IcaData, state: IcaState, model: SourceModel) -> IcaState:
        """Shapes and scales of the sources, and q(z, u)."""

    def describe(self, rows: Array, state: IcaState, model: SourceModel) -> tuple[Array, Array, Array]:
        """⟨z⟩, ⟨z²⟩ and the value Σ_k (prior) + entropy − ½⟨zᵀGz⟩ + b⟨z⟩ of rows never seen."""

    def draw(self, rows: Array, state: IcaState, model: SourceModel, count: int, rng: np.random.Generator) -> Array:
        """Draws of the sources of rows never seen, of shape (count, N, K)."""


def make_data(rows: Array) -> IcaData:
    """Of centred rows."""
    return IcaData(rows, np.einsum("nd,nd->d", rows, rows))


def source_precision(state: IcaState) -> Array:
    """G = Σ_d ⟨ψ_d⁻¹⟩ m_d m_dᵀ + DV."""
    weighted = state.mixing * state.noise_precision[:, None]
    return blas.dgemm(1.0, weighted, state.mixing, trans_a=1) + len(state.mixing) * state.spread


def fields(rows: Array, state: IcaState) -> Array:
    """b of every row, N×K."""
    weighted = state.mixing * state.noise_precision[:, None]
    return blas.dgemm(1.0, weighted, rows.T, trans_a=1).T


def products(rows: Array, means: Array) -> Array:
    """Σ_n ⟨z_n⟩ x_nᵀ, K×D."""
    return blas.dgemm(1.0, rows.T, means.T, trans_b=1).T


def update_mixing(data: IcaData, state: IcaState) -> IcaState:
    """q(A, Ψ)."""
    root = cholesky(np.diag(state.relevance) + state.second, name="diag γ + R", max_jitter=1e-10)
    spread = root.inverse()
    mixing = root.solve(state.product).T
    # m_dᵀV⁻¹m_d = t_dᵀm_d
    explained = np.einsum("kd,dk->d", state.product, mixing)
    rate = state.prior_rate + 0.5 * np.maximum(data.squares - explained, 0.0)
    shape = state.prior_shape + 0.5 * len(data.rows)
    return state._replace(
        mixing=np.ascontiguousarray(mixing),
        spread=spread,
        noise_shape=shape,
        noise_rate=np.maximum(rate, NOISE_FLOOR * shape * data.squares / len(data.rows)),
    )


def loading_squares(state: IcaState) -> Array:
    """Σ_d ⟨A_dk²/ψ_d⟩, K."""
    square = np.einsum("d,dk,dk->k", state.noise_precision, state.mixing, state.mixing)
    return square + len(state.mixing) * np.diagonal(state.spread)


def update_separate_relevance(state: IcaState) -> IcaState:
    """One γ a source, each at its best together with q(A | Ψ), given the others."""
    for k in range(len(state.relevance)):
        state = relevance_of(state, k)
    return state


def relevance_of(state: IcaState, k: int) -> IcaState:
    """γ_k and q(A | Ψ), as `latlin.factor.binary.model.RelevantFeatures` has them.

    With cavity precision h = 1/V_kk − γ_k and q² = Σ_d ⟨ψ_d⁻¹⟩ m_dk²/V_kk² the best γ_k is Dh²/(q² − Dh), or infinite
    when q² ≤ Dh; here infinite means DEAD times what the data say. V and m follow by one rank-one update.
    """
    column, loading = state.spread[:, k].copy(), state.mixing[:, k].copy()
    dim, own, old = len(loading), column[k], state.relevance[k]
    h = 1.0 / own - old
    largest = DEAD * max(state.second[k, k], 1e-300)
    excess = float(state.noise_precision @ loading**2) / own**2 - dim * h
    new = min(dim * h * h / excess, largest) if excess > 0.0 and h > 1e-10 / own else largest
    share = (new - old) / (1.0 + (new - old) * own)
    relevance = state.relevance.copy()
    relevance[k] = new
    return state._replace(
        relevance=relevance,
        spread=state.spread - share * np.outer(column, column),
        mixing=state.mixing - share * np.outer(loading, column),
    )


def find_switched_off(state: IcaState) -> NDArray[np.intp]:
    """The sources whose γ is infinite."""
    return np.flatnonzero(state.relevance >= 0.5 * DEAD * np.diagonal(state.second))


def update_slow_relevance(state: IcaState) -> IcaState:
    """γ_k ← D / Σ_d ⟨A_dk²/ψ_d⟩ for a given q(A | Ψ): no source is ever switched off."""
    return state._replace(relevance=len(state.mixing) / loading_squares(state))


def update_common_relevance(state: IcaState) -> IcaState:
    """One γ for all sources, at its best for a given q(A | Ψ)."""
    best = state.mixing.size / float(loading_squares(state).sum())
    return state._replace(relevance=np.full_like(state.relevance, best))


def tie_noise(state: IcaState) -> IcaState:
    """b₀ at its best for an a₀ that is held."""
    return state._replace(prior_rate=state.prior_shape / float(state.noise_precision.mean()))


def update_noise_prior(state: IcaState) -> IcaState:
    """a₀ and b₀: the gamma density of highest Σ_d ⟨log p(ψ_d⁻¹)⟩."""
    precision = state.noise_precision
    log_precision = digamma(state.noise_shape) - np.log(state.noise_rate)
    # log a₀ − ψ(a₀) = log mean⟨ψ⁻¹⟩ − mean⟨log ψ⁻¹⟩, falling in a₀
    gap = float(np.log(precision.mean()) - log_precision.mean())
    count = 2.0 * (state.noise_shape - state.prior_shape)
    low, high = np.log((LEAST_SHAPE, MOST_SHAPE * count))
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle - digamma(np.exp(middle)) > gap else (low, middle)
    return tie_noise(state._replace(prior_shape=float(np.exp(0.5 * (low + high)))))


def likelihood(data: IcaData, state: IcaState) -> float:
    """⟨log p(X | Z, A, Ψ)⟩."""
    n, dim = data.rows.shape
    m, tau = state.mixing, state.noise_precision
    error = data.squares - 2.0 * np.einsum("kd,dk->d", state.product, m) + np.einsum("dk,kl,dl->d", m, state.second, m)
    square = float(tau @ error) + dim * float(np.vdot(state.second, state.spread))
    log_noise = float(np.log(state.noise_rate).sum()) - dim * digamma(state.noise_shape)
    return -n * dim * LOG_SQRT_2PI - 0.5 * n * log_noise - 0.5 * square


def divergence(state: IcaState) -> float:
    """KL(q(A, Ψ) ‖ p(A, Ψ))."""
    dim, k = state.mixing.shape
    log_det = cholesky(state.spread, name="V").log_det
    # Σ_d ½[tr(diag γ V) + ⟨ψ_d⁻¹⟩ m_dᵀ diag γ m_d − K − log det(diag γ V)]
    regression = state.relevance @ loading_squares(state) - dim * (k + np.log(state.relevance).sum() + log_det)
    shape = np.full(dim, state.noise_shape)
    return float(0.5 * regression + gamma_kl(shape, state.noise_rate, state.prior_shape, state.prior_rate).sum())


def bound(data: IcaData, state: IcaState) -> float:
    """The bound on log p(X | c, γ, shapes, scales), every constant included."""
    return likelihood(data, state) + float(state.prior.sum()) + state.entropy - divergence(state)


def drop(state: IcaState, source: int) -> IcaState:
    """The state without one source; q(A, Ψ) of the others stays. q(z) is to be inferred next."""
    keep: NDArray[np.intp] = np.delete(np.arange(len(state.shape)), source)
    block = np.ix_(keep, keep)
    return state._replace(
        means=np.ascontiguousarray(state.means[:, keep]),
        squares=np.ascontiguousarray(state.squares[:, keep]),
        second=state.second[block],
        product=state.product[keep],
        scale_moments=state.scale_moments[:, keep],
        prior=state.prior[keep],
        mixing=np.ascontiguousarray(state.mixing[:, keep]),
        spread=state.spread[block],
        relevance=state.relevance[keep],
        shape=state.shape[keep],
        scale=state.scale[keep],
    )
