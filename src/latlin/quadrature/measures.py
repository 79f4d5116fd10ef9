"""What is integrated against: a Gaussian, a mixture of Gaussians, a box, or another measure by way of one of these.

Each measure knows the affine frame x = b + A z in which it is standard (Gutteridge (2021), §7.2.2 asks for
p(x) "a Gaussian or mixture of Gaussians"; the box serves integrals over bounded regions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_callable, check_whole, float_array, real_array
from latlin.numerics.rng import RandomState, generator
from latlin.quadrature.kernels import HALF, Box, Components, Standard


class Frame(NamedTuple):
    """x = offset + factor z, with a lower triangular factor."""

    offset: Array
    factor: Array

    def outward(self, z: Array) -> Array:
        """From standard coordinates to the user's."""
        return self.offset + z @ self.factor.T

    def inward(self, x: Array) -> Array:
        """From the user's coordinates to standard ones."""
        return np.asarray(np.linalg.solve(self.factor, (x - self.offset).T).T, dtype=np.float64)

    @property
    def log_volume(self) -> float:
        """log |det A|."""
        return float(np.log(np.diagonal(self.factor)).sum())


class Measure(Protocol):
    """A probability distribution that integrals are taken against."""

    @property
    def dim(self) -> int: ...
    @property
    def frame(self) -> Frame: ...
    @property
    def standard(self) -> Standard: ...


class _InFrame:
    """Density and draws of a measure, by way of its frame."""

    frame: Frame
    standard: Standard

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.standard.dim

    def logpdf(self, x: ArrayLike) -> Array:
        """log density at the rows of x."""
        return self.standard.logpdf(self.frame.inward(check_points(x, self.dim, "x"))) - self.frame.log_volume

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """n independent draws, of shape (n, dim)."""
        u = generator(random_state).uniform(size=(n, self.dim + 1))
        return self.frame.outward(self.standard.place(u))


class Gaussian(_InFrame):
    """The Gaussian measure N(mean, cov).

    Parameters
    ----------
    mean : float or array of shape (d,)
    cov : float, array of shape (d,) (variances) or (d, d)
    dim : int, optional
        d, when neither of the others tells.

    Examples
    --------
    >>> Gaussian([0.0, 1.0], 2.0).dim
    2
    """

    def __init__(self, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0, dim: int | None = None) -> None:
        d = _dimension({"mean": mean, "cov": cov}, dim)
        m = np.array(np.broadcast_to(real_array("mean", mean), (d,)))
        factor = _factor(_matrix(cov, d, "cov"), "cov")
        self.mean = m
        self.cov = factor @ factor.T
        self.frame = Frame(m, factor)
        self.standard: Standard = Components(np.ones(1), np.zeros((1, d)), np.eye(d)[None])

    def __repr__(self) -> str:
        return f"Gaussian(mean={self.mean.tolist()}, cov={self.cov.tolist()})"


class GaussianMixture(_InFrame):
    """The measure Σ_a weights_a N(means_a, covs_a).

    Parameters
    ----------
    weights : array of shape (M,)
        Positive; divided by their sum.
    means : array of shape (M, d)
    covs : array of shape (M, d, d), (M, d) (variances) or (M,), or a float
    """

    def __init__(self, weights: ArrayLike, means: ArrayLike, covs: ArrayLike) -> None:
        m, w = np.atleast_2d(real_array("means", means)), np.atleast_1d(real_array("weights", weights))
        if not m.size:
            raise ValueError(f"means must have one row per component, got shape {m.shape}")
        if w.shape != (len(m),) or np.any(w <= 0.0):
            raise ValueError(f"weights must be {len(m)} positive numbers, one per row of means, got {w!r}")
        s = _matrices(covs, *m.shape)
        for one in s:
            _factor(one, "covs")
        self.weights, self.means, self.covs = w / w.sum(), m, s
        self.frame = _mixture_frame(self.weights, m, s)
        scale = np.diagonal(self.frame.factor)
        self.standard: Standard = Components(self.weights, self.frame.inward(m), s / np.outer(scale, scale))

    def __repr__(self) -> str:
        return f"GaussianMixture of {len(self.weights)} components in {self.dim} dimensions"


class Uniform(_InFrame):
    """The uniform distribution on the box ∏_d [lower_d, upper_d]; a probability, so divide by nothing.

    Parameters
    ----------
    lower, upper : float or array of shape (d,)
    dim : int, optional
        d, when both bounds are numbers.
    """

    def __init__(self, lower: ArrayLike = 0.0, upper: ArrayLike = 1.0, dim: int | None = None) -> None:
        d = _dimension({"lower": lower, "upper": upper}, dim)
        lo, hi = (np.array(np.broadcast_to(real_array(n, v), (d,))) for n, v in (("lower", lower), ("upper", upper)))
        if not np.all(lo < hi):
            raise ValueError(f"lower must be below upper in every coordinate, got {lo.tolist()}, {hi.tolist()}")
        self.lower, self.upper = lo, hi
        self.frame = Frame(0.5 * (lo + hi), np.diag((hi - lo) / (2.0 * HALF)))
        self.standard: Standard = Box(d)

    @property
    def volume(self) -> float:
        """∏(upper − lower): times this, a mean over the box becomes an integral over it."""
        return float(np.prod(self.upper - self.lower))

    def __repr__(self) -> str:
        return f"Uniform(lower={self.lower.tolist()}, upper={self.upper.tolist()})"


class Reweighted(_InFrame):
    """Any measure by its log density, integrated over by way of one that is known: ∫ f p = ∫ (f p/q) q.

    Parameters
    ----------
    log_density : callable
        Points of shape (n, d) → log p of shape (n,). If p is not normalised, neither is the integral.
    proposal : Gaussian, GaussianMixture or Uniform
        q. It should reach wherever p does, with heavier tails if anything: the integrand of the process is f p/q.

    Examples
    --------
    >>> from latlin.quadrature import integrate
    >>> logistic = Reweighted(lambda x: -x[:, 0] - 2.0 * np.log1p(np.exp(-x[:, 0])), Gaussian(0.0, 6.0))
    >>> print(f"{integrate(lambda x: x[:, 0] ** 2, logistic, 40, random_state=0).mean:.2f}")  # π²/3
    3.29
    """

    def __init__(
        self, log_density: Callable[[Array], ArrayLike], proposal: Gaussian | GaussianMixture | Uniform
    ) -> None:
        if not isinstance(proposal, Gaussian | GaussianMixture | Uniform):
            raise ValueError(f"proposal must be a Gaussian, GaussianMixture or Uniform, got {proposal!r:.80}")
        self.log_density, self.proposal = check_callable("log_density", log_density), proposal
        self.frame, self.standard = proposal.frame, proposal.standard

    def logpdf(self, x: ArrayLike) -> Array:
        """log p at the rows of x, as it was given."""
        return np.asarray(self.log_density(check_points(x, self.dim, "x")), dtype=float)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """There are no draws of a density that is only known by its logarithm."""
        raise ValueError("a Reweighted measure has no draws of its own; draw from its proposal")

    def log_ratio(self, x: Array) -> Array:
        """log p/q at the rows of x."""
        return self.logpdf(x) - self.proposal.logpdf(x)

    def __repr__(self) -> str:
        return f"Reweighted(proposal={self.proposal!r})"


def check_points(x: ArrayLike, dim: int, name: str) -> Array:
    """x as a finite (n, dim) array; a vector counts as one point, or as n points on the line."""
    points = float_array(name, x)
    if points.ndim < 2:
        points = points.reshape(-1, 1) if dim == 1 else np.atleast_2d(points)
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(f"{name} must have shape (n, {dim}), got {np.shape(x)}")
    return _finite(points, name)


def _mixture_frame(w: Array, m: Array, s: Array) -> Frame:
    centre = w @ m
    variance = w @ (np.diagonal(s, axis1=1, axis2=2) + (m - centre) ** 2)
    return Frame(centre, np.diag(np.sqrt(variance)))


def _dimension(parts: dict[str, ArrayLike], dim: int | None) -> int:
    arrays = {name: real_array(name, value) for name, value in parts.items()}
    sizes = {name: len(array) for name, array in arrays.items() if array.ndim}
    if dim is not None:
        sizes["dim"] = check_whole("dim", dim, 1)
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        said = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"the arguments disagree about the number of coordinates, or have none: {said}")
    return next(iter(sizes.values()), 1)


def _matrix(cov: ArrayLike, d: int, name: str) -> Array:
    c = real_array(name, cov)
    if c.ndim < 2:
        return np.diag(np.broadcast_to(c, (d,)))
    if c.shape != (d, d) or not np.allclose(c, c.T, rtol=1e-10, atol=0.0):
        raise ValueError(f"{name} must be a symmetric matrix of shape {(d, d)}, got shape {c.shape}")
    return c


def _matrices(covs: ArrayLike, count: int, d: int) -> Array:
    c = real_array("covs", covs)
    if c.ndim == 0:
        return np.broadcast_to(c * np.eye(d), (count, d, d)).copy()
    if len(c) != count or c.ndim > 3:
        raise ValueError(f"covs must have one entry per row of means ({count}), got shape {c.shape}")
    return np.array([_matrix(one, d, "covs") for one in c])


def _factor(cov: Array, name: str) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"{name} must be positive definite, got {cov.tolist()}") from error


def _finite(a: Array, name: str) -> Array:
    if not np.all(np.isfinite(a)):
        raise ValueError(f"{name} must be finite, got {a!r}")
    return np.array(a, dtype=float)
