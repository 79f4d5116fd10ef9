"""Stationary product kernels of unit variance, k(x, x′) = ∏_d κ(|x_d − x′_d| / ℓ_d), and their integrals.

Each family knows its matrices, their slopes in log ℓ, and three closed forms per coordinate: its mean under a
normal and under a uniform coordinate, and its double mean under two independent uniform ones. The double mean under
normals needs no formula of its own: x − x′ is again normal, and the kernel depends on nothing else.
(Kernel: Gutteridge (2021), eq. 7.4; the integrals of (7.12).)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.special import erf, erfcx, logsumexp, ndtr, ndtri

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.options import resolve_choice
from latlin.numerics.threads import njit

# --- Compiled passes over pairs of points: what every kernel matrix and its slopes in the length scales are made of.
#
# Coordinates come divided by their length scales (and times the rate λ of a Matérn kernel), so that a pair is
# known by t_d = |x_d − x′_d|. A product Matérn kernel is ∏(1 + c₁t_d + c₂t_d²) · exp(−Σt_d): one exponential a pair.


@njit(cache=True)
def square_distances(a: Array, b: Array) -> Array:
    """Σ_d t_d² between the rows of a and of b."""
    out = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = 0.0
            for d in range(a.shape[1]):
                total += (a[i, d] - b[j, d]) ** 2
            out[i, j] = total
    return out


@njit(cache=True)
def matern_parts(a: Array, b: Array, linear: float, square: float) -> tuple[Array, Array]:
    """Σ_d t_d and ∏_d (1 + c₁t_d + c₂t_d²) between the rows of a and of b."""
    exponents = np.empty((a.shape[0], b.shape[0]))
    polynomials = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total, product = 0.0, 1.0
            for d in range(a.shape[1]):
                t = abs(a[i, d] - b[j, d])
                total += t
                product *= 1.0 + linear * t + square * t * t
            exponents[i, j] = total
            polynomials[i, j] = product
    return exponents, polynomials


@njit(cache=True)
def square_slopes(weighted: Array, a: Array) -> Array:
    """Σ_ij W_ij t_d² for every d, W symmetric."""
    out = np.zeros(a.shape[1])
    for i in range(a.shape[0]):
        for j in range(i):
            for d in range(a.shape[1]):
                out[d] += 2.0 * weighted[i, j] * (a[i, d] - a[j, d]) ** 2
    return out


@njit(cache=True)
def matern_slopes(weighted: Array, a: Array, linear: float, square: float) -> Array:
    """Σ_ij W_ij t_d (1 − (c₁ + 2c₂t_d) / (1 + c₁t_d + c₂t_d²)) for every d, W symmetric."""
    out = np.zeros(a.shape[1])
    for i in range(a.shape[0]):
        for j in range(i):
            for d in range(a.shape[1]):
                t = abs(a[i, d] - a[j, d])
                slope = t * (1.0 - (linear + 2.0 * square * t) / (1.0 + linear * t + square * t * t))
                out[d] += 2.0 * weighted[i, j] * slope
    return out


class Kernel(ABC):
    """One family of κ."""

    name: str

    @abstractmethod
    def gram(self, a: Array, b: Array, lengths: Array) -> Array:
        """k between the rows of a and of b."""

    @abstractmethod
    def log_length_slopes(self, weighted: Array, a: Array, lengths: Array) -> Array:
        """Σ_ij W_ij ∂ log k(a_i, a_j)/∂ log ℓ_d for every d; `weighted` is the symmetric W ∘ k."""

    @abstractmethod
    def normal_mean(self, delta: Array, scale: Array, length: Array) -> Array:
        """∫ κ(|x − x′|/ℓ) N(x′ | x − δ, scale²) dx′."""

    @abstractmethod
    def uniform_mean(self, x: Array, half: float, length: Array) -> Array:
        """The mean of κ(|x − x′|/ℓ) over x′ uniform on [−half, half]."""

    @abstractmethod
    def uniform_double_mean(self, half: float, length: Array) -> Array:
        """The mean of κ(|x − x′|/ℓ) over x, x′ independent and uniform on [−half, half]."""


class RBF(Kernel):
    """κ(u) = exp(−u²/2)."""

    name = "rbf"

    def gram(self, a: Array, b: Array, lengths: Array) -> Array:
        out = square_distances(_scaled(a, 1.0 / lengths), _scaled(b, 1.0 / lengths))
        out *= -0.5
        return np.exp(out, out=out)

    def log_length_slopes(self, weighted: Array, a: Array, lengths: Array) -> Array:
        return square_slopes(weighted, _scaled(a, 1.0 / lengths))

    def normal_mean(self, delta: Array, scale: Array, length: Array) -> Array:
        total = length**2 + scale**2
        return length / np.sqrt(total) * np.exp(-0.5 * delta**2 / total)

    def uniform_mean(self, x: Array, half: float, length: Array) -> Array:
        root = np.sqrt(2.0) * length
        return np.sqrt(np.pi / 8.0) * length / half * (erf((half - x) / root) + erf((half + x) / root))

    def uniform_double_mean(self, half: float, length: Array) -> Array:
        # 2/w² ∫₀^w (w − r) κ(r/ℓ) dr with w = 2·half and a = w/ℓ
        a = 2.0 * half / length
        inner = a * np.sqrt(np.pi / 2.0) * erf(a / np.sqrt(2.0)) + np.expm1(-0.5 * a * a)
        return 2.0 * inner / a**2


class Matern(Kernel):
    """κ(u) = (1 + c₁λu + c₂λ²u²) exp(−λu): ½ with c = (0, 0), λ = 1; 3/2 with c = (1, 0), λ = √3; 5/2 with
    c = (1, 1/3), λ = √5. `primitive` and `double_primitive` are the polynomials P with ∫₀^t κ = P(0) − P(t)e^{−t},
    and the same for P."""

    def __init__(
        self, name: str, rate: float, linear: float, square: float, primitive: Array, double_primitive: Array
    ) -> None:
        self.name = name
        self.rate = rate
        self.linear = linear
        self.square = square
        self._primitive = primitive
        self._double_primitive = double_primitive

    def gram(self, a: Array, b: Array, lengths: Array) -> Array:
        rates = self.rate / lengths
        exponents, polynomials = matern_parts(_scaled(a, rates), _scaled(b, rates), self.linear, self.square)
        np.exp(np.negative(exponents, out=exponents), out=exponents)
        return np.multiply(exponents, polynomials, out=exponents)

    def log_length_slopes(self, weighted: Array, a: Array, lengths: Array) -> Array:
        return matern_slopes(weighted, _scaled(a, self.rate / lengths), self.linear, self.square)

    def normal_mean(self, delta: Array, scale: Array, length: Array) -> Array:
        return self._half_mean(delta, scale, length) + self._half_mean(-delta, scale, length)

    def _half_mean(self, mu: Array, s: Array, length: Array) -> Array:
        # J_k = E[r^k e^{−λr}; r > 0], r ~ N(μ, s²): a tilted normal cut at zero, M = μ − λs² its mean
        # J₁ = M J₀ + s G,  J₂ = M J₁ + s² J₀,  G = N(μ/s)
        rate = self.rate / length
        m = mu - rate * s * s
        gauss = np.exp(-0.5 * (mu / s) ** 2) / np.sqrt(2.0 * np.pi)
        j0 = _tilted_mass(mu, m / s, s, rate, gauss)
        j1 = m * j0 + s * gauss
        j2 = m * j1 + s * s * j0
        return j0 + self.linear * rate * j1 + self.square * rate**2 * j2

    def uniform_mean(self, x: Array, half: float, length: Array) -> Array:
        rate = self.rate / length
        return (self._area(rate * (half - x)) + self._area(rate * (half + x))) / (2.0 * half * rate)

    def _area(self, t: Array) -> Array:
        # ∫₀^t κ dt = P(0) − P(t) e^{−t}, odd in t
        size = np.abs(t)
        return np.sign(t) * (
            self._primitive[0] - np.polynomial.polynomial.polyval(size, self._primitive) * np.exp(-size)
        )

    def uniform_double_mean(self, half: float, length: Array) -> Array:
        # 2/t² ∫₀^t area, t = λw/ℓ
        t = 2.0 * half * self.rate / length
        p, q = self._primitive, self._double_primitive
        inner = p[0] * t - q[0] + np.polynomial.polynomial.polyval(t, q) * np.exp(-t)
        return 2.0 * inner / t**2


def _scaled(points: Array, factors: Array) -> Array:
    return np.multiply(points, factors, order="C")


def _tilted_mass(mu: Array, t: Array, s: Array, rate: Array, gauss: Array) -> Array:
    # e^{−λμ + λ²s²/2} Φ(t), t = (μ − λs²)/s; on the left of zero through erfcx, where Φ underflows
    left = np.sqrt(np.pi / 2.0) * gauss * erfcx(np.maximum(-t, 0.0) / np.sqrt(2.0))
    exponent = np.where(t > 0.0, -rate * mu + 0.5 * (rate * s) ** 2, 0.0)
    return np.where(t > 0.0, np.exp(exponent) * ndtr(t), left)


_MATERN12 = Matern("matern12", 1.0, 0.0, 0.0, np.array([1.0]), np.array([1.0]))
_MATERN32 = Matern("matern32", np.sqrt(3.0), 1.0, 0.0, np.array([2.0, 1.0]), np.array([3.0, 1.0]))
_MATERN52 = Matern(
    "matern52", np.sqrt(5.0), 1.0, 1.0 / 3.0, np.array([8.0, 5.0, 1.0]) / 3.0, np.array([15.0, 7.0, 1.0]) / 3.0
)
KERNELS: dict[str, Kernel] = {k.name: k for k in (RBF(), _MATERN12, _MATERN32, _MATERN52)}


def resolve_kernel(kernel: str | Kernel) -> Kernel:
    """The kernel of this name."""
    found: Kernel = resolve_choice("kernel", kernel, KERNELS, "a Kernel", lambda own: isinstance(own, Kernel))
    return found


# --- Measures in standard coordinates: a mixture of Gaussians of overall unit scale, or a centred cube.
#
# Every measure of `latlin.quadrature.measures` is one of these two after an affine change of variables, so that
# length scales are numbers near one and the closed forms are written once.


HALF = float(np.sqrt(3.0))  # the half width at which a uniform coordinate has variance one


class Components(NamedTuple):
    """Σ_a w_a N(m_a, S_a)."""

    weights: Array  # (M,)
    means: Array  # (M, d)
    covs: Array  # (M, d, d)

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def axis_aligned(self) -> bool:
        """Whether every S_a is diagonal, so that the measure is a mixture of products."""
        off_diagonal = self.covs * (1.0 - np.eye(self.dim))
        return bool(np.all(off_diagonal == 0.0))

    def logpdf(self, z: Array) -> Array:
        """log p at the rows of z."""
        parts = [
            np.log(w) + normal_logpdf(z - m, s) for w, m, s in zip(self.weights, self.means, self.covs, strict=True)
        ]
        return logsumexp(np.array(parts), axis=0)

    def place(self, u: Array) -> Array:
        """Points of the measure from uniform numbers u of shape (n, d + 1): component, then place in it."""
        edges = np.cumsum(self.weights)[:-1]
        component = np.searchsorted(edges, u[:, 0], side="right")
        factors = np.linalg.cholesky(self.covs)
        return self.means[component] + np.einsum("nij,nj->ni", factors[component], ndtri(u[:, 1:]))

    def clip(self, z: Array) -> Array:
        """The plane has no edge: z as it is."""
        return z

    def broaden(self, factor: float) -> Components:
        """The same centres with covariances `factor` times as large."""
        return Components(self.weights, self.means, self.covs * factor)


class Box(NamedTuple):
    """The uniform distribution on [−√3, √3]^d, of unit variance."""

    dim: int

    def logpdf(self, z: Array) -> Array:
        """log p at the rows of z; −inf outside."""
        inside = np.all(np.abs(z) <= HALF * (1.0 + 1e-12), axis=1)
        return np.where(inside, -self.dim * np.log(2.0 * HALF), -np.inf)

    def place(self, u: Array) -> Array:
        """Points of the measure from uniform numbers u of shape (n, d + 1); the first column is not used."""
        return HALF * (2.0 * u[:, 1:] - 1.0)

    def clip(self, z: Array) -> Array:
        """The nearest points inside."""
        return np.clip(z, -HALF, HALF)

    def broaden(self, factor: float) -> Box:
        """There is nothing outside a box: the same box."""
        return self


Standard = Components | Box


def normal_logpdf(r: Array, cov: Array) -> Array:
    """log N(r|0, cov) of the rows of r."""
    lower = np.linalg.cholesky(cov)
    white = np.linalg.solve(lower, r.T)
    return -0.5 * (np.einsum("dn,dn->n", white, white) + r.shape[1] * LOG_2PI) - np.log(np.diagonal(lower)).sum()


# --- Kernel means: z(x) = ∫ k(x, x′) p(x′) dx′ and ∬ k(x, x′) p(x) p(x′) dx dx′, in closed form.
#
# They are all that the posterior of an integral needs (Gutteridge (2021), eqs. 7.12, 7.17). Kernels have unit
# variance here; measures are standard.


def kernel_mean(kernel: Kernel, lengths: Array, measure: Standard, z: Array) -> Array:
    """∫ k(z_n, x) p(x) dx for every row z_n."""
    if isinstance(measure, Box):
        return np.prod(kernel.uniform_mean(z, HALF, lengths), axis=1)
    parts = zip(measure.weights, measure.means, measure.covs, strict=True)
    return sum(w * _normal_mean(kernel, lengths, z - m, s) for w, m, s in parts)


def kernel_double_mean(kernel: Kernel, lengths: Array, measure: Standard) -> float:
    """∬ k(x, x′) p(x) p(x′) dx dx′."""
    if isinstance(measure, Box):
        return float(np.prod(kernel.uniform_double_mean(HALF, lengths)))
    pairs = _pairs(measure)
    return float(sum(w * _normal_mean(kernel, lengths, m[None], s)[0] for w, m, s in pairs))


def has_closed_form(kernel: Kernel, measure: Standard) -> bool:
    """Whether the kernel's means under this measure are known."""
    return isinstance(kernel, RBF) or not isinstance(measure, Components) or measure.axis_aligned


def check_closed_form(kernel: Kernel, measure: Standard) -> None:
    """Raise an error that names the pair, which has no closed form."""
    if not has_closed_form(kernel, measure):
        raise ValueError(
            f"kernel {kernel.name!r} has closed-form means for mixtures with diagonal covariances only; "
            "use kernel='rbf' or give variances instead of full covariances"
        )


def _pairs(measure: Components) -> list[tuple[float, Array, Array]]:
    # x − x′ under components a and b is N(m_a − m_b, S_a + S_b)
    index = range(len(measure.weights))
    w, m, s = measure
    return [(w[a] * w[b], m[a] - m[b], s[a] + s[b]) for a in index for b in index]


def _normal_mean(kernel: Kernel, lengths: Array, delta: Array, cov: Array) -> Array:
    if isinstance(kernel, RBF):
        # ∫ k N = (2π)^{d/2} |Λ|^{½} N(δ | 0, Λ + S), Λ = diag(ℓ²)
        constant = 0.5 * len(lengths) * np.log(2.0 * np.pi) + np.log(lengths).sum()
        return np.exp(constant + normal_logpdf(delta, np.diag(lengths**2) + cov))
    return np.prod(kernel.normal_mean(delta, np.sqrt(np.diagonal(cov)), lengths), axis=1)


# --- Integrals of products of squared-exponential kernels, which a squared Gaussian process needs.
#
# For a standard measure p and unit variance:
# Q(a, b) = ∫ k(a, x) k(x, b) p(x) dx, T_ij = ∬ k(z_i, x) k(x, x′) k(x′, z_j) p(x) p(x′) dx dx′ and ∬ k(x, x′)² p p′.
# All are Gaussian integrals; over a box Q is a difference of error functions and T is a one-dimensional
# integral per coordinate, taken by a Gauss–Legendre rule to rounding.


def product_mean(lengths: Array, measure: Standard, a: Array, b: Array) -> Array:
    """Q between the rows of a and of b."""
    if isinstance(measure, Box):
        columns = zip(a.T, b.T, lengths, strict=True)
        return np.prod([_box_product(*column) for column in columns], axis=0)
    # k(a,x)k(x,b) = k_{√2ℓ}(a,b) k_{ℓ/√2}(x, (a+b)/2)
    outer = KERNELS["rbf"].gram(a, b, np.sqrt(2.0) * lengths)
    middle = (0.5 * (a[:, None] + b[None])).reshape(-1, a.shape[1])
    constant = _log_constant(lengths / np.sqrt(2.0))
    total = np.zeros(len(middle))
    for w, m, s in zip(*measure, strict=True):
        total += w * np.exp(constant + normal_logpdf(middle - m, s + np.diag(0.5 * lengths**2)))
    return outer * total.reshape(outer.shape)


def product_double_mean(lengths: Array, measure: Standard, z: Array) -> Array:
    """T between the rows of z."""
    if isinstance(measure, Box):
        return np.prod([_box_chain(column, length) for column, length in zip(z.T, lengths, strict=True)], axis=0)
    # k(z_i,x) N(x|m_a,S_a) = (2π)^{d/2}|Λ|^{½} N(z_i|m_a, Λ+S_a) N(x|μ_ia, P_a): two of these, linked by k(x,x′)
    tilted = [_tilt(lengths, w, m, s, z) for w, m, s in zip(*measure, strict=True)]
    total = np.zeros((len(z), len(z)))
    for mass_a, mean_a, cov_a in tilted:
        for mass_b, mean_b, cov_b in tilted:
            total += np.outer(mass_a, mass_b) * _link(lengths, mean_a, mean_b, cov_a + cov_b)
    return total


def square_double_mean(lengths: Array, measure: Standard) -> float:
    """∬ k(x, x′)² p(x) p(x′) dx dx′: the square of a Gaussian kernel is one of length ℓ/√2."""
    return kernel_double_mean(KERNELS["rbf"], lengths / np.sqrt(2.0), measure)


def _tilt(lengths: Array, w: float, m: Array, s: Array, z: Array) -> tuple[Array, Array, Array]:
    wide = np.diag(lengths**2) + s
    gain = np.linalg.solve(wide, s)  # (Λ+S)⁻¹S
    mass = w * np.exp(_log_constant(lengths) + normal_logpdf(z - m, wide))
    return mass, m + (z - m) @ gain, (lengths**2)[:, None] * gain


def _link(lengths: Array, mean_a: Array, mean_b: Array, cov: Array) -> Array:
    # ∬ k(x,x′) N(x|μ,P) N(x′|μ′,P′) = (2π)^{d/2}|Λ|^{½} N(μ − μ′ | 0, Λ + P + P′)
    wide = np.diag(lengths**2) + 0.5 * (cov + cov.T)
    white = np.linalg.inv(np.linalg.cholesky(wide)).T
    a, b = mean_a @ white, mean_b @ white
    scale = np.exp(_log_constant(lengths) - 0.5 * len(lengths) * LOG_2PI - 0.5 * np.linalg.slogdet(wide)[1])
    return scale * KERNELS["rbf"].gram(a, b, np.ones(len(lengths)))


def _log_constant(lengths: Array) -> float:
    return float(0.5 * len(lengths) * LOG_2PI + np.log(lengths).sum())


def _box_product(a: Array, b: Array, length: float) -> Array:
    # mean over [−h, h] of e^{−((x−a)²+(x−b)²)/2ℓ²} = e^{−(a−b)²/4ℓ²} · mean of e^{−(x−c)²/ℓ²}, c = (a+b)/2
    middle = 0.5 * (a[:, None] + b[None])
    area = erf((HALF - middle) / length) + erf((HALF + middle) / length)
    return np.exp(-(((a[:, None] - b[None]) / (2.0 * length)) ** 2)) * np.sqrt(np.pi) * length / (4.0 * HALF) * area


def _box_chain(z: Array, length: float) -> Array:
    nodes, weights = np.polynomial.legendre.leggauss(32 + int(24.0 * HALF / length))
    x = HALF * nodes
    left = np.exp(-0.5 * ((z[:, None] - x) / length) ** 2) * (0.5 * weights)
    return left @ _box_product(x, z, length)
