"""Integrals against a Gaussian in one dimension, many sites at once; derivatives by differences, inverses.

∫ N(x|m, s²) f(x) dx is written in z = (x − m)/s and cut into panels with 16 Gauss–Legendre nodes each.
Panel edges are the Gaussian's own (every three standard deviations) and those of f: for a region (c, ω) the
centre c, where f may have a kink, and c ± ω·{1, 2, 4, 8, 32, 128, …}. A panel is then short against its
distance to the singularities of an f that bends on the scale ω around c, in the complex plane too, so that
16 nodes leave an error near rounding at any ratio of s to ω. Arrays of nodes have shape (nodes, sites).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal

from latlin.numerics.arrays import LOG_SQRT_2PI, Array

Regions = Sequence[tuple[ArrayLike, ArrayLike]]

#: standard deviations after which the Gaussian is left out: 2Φ(−9) = 2e-19
REACH = 9.0
#: standard deviations within which a log-concave integrand falls by 84 nat
TILTED_REACH = 13.0
#: nat below the top where a log-concave integrand is cut off
TILTED_DROP = 45.0
TINY_SD = 1e-150


@cache
def _legendre(n: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return nodes[None, :, None], weights[None, :, None]


@cache
def gauss_hermite(n: int) -> tuple[Array, Array]:
    """Nodes z and weights w with Σ w f(z) ≈ ∫ N(z|0, 1) f(z) dz, exact for polynomials of degree 2n − 1.

    >>> z, w = gauss_hermite(5)
    >>> bool(np.isclose((w * z**4).sum(), 3.0))
    True
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    weights /= weights.sum()
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights


@cache
def trapezoid(n: int, reach: float) -> tuple[Array, Array]:
    """n equidistant nodes on ±reach and weights with Σ w f(z) ≈ ∫ N(z|0, 1) f(z) dz."""
    step = 2 * reach / n
    nodes = step * (np.arange(n) - 0.5 * (n - 1))
    weights = np.exp(-0.5 * nodes * nodes)
    weights /= weights.sum()
    nodes.flags.writeable = weights.flags.writeable = False
    return np.asarray(nodes, dtype=float), weights


@cache
def gauss_softplus(n: int) -> tuple[Array, Array]:
    """Nodes x and weights w with Σ w f(x) ≈ ∫_0^∞ log(1 + e^{−x}) f(x) dx, exact for degree 2n − 1.

    The recurrence of the orthogonal polynomials is that of the weight on a fine grid of Gauss–Legendre panels
    (Lanczos with full orthogonalisation); nodes and weights are the spectrum of its Jacobi matrix.

    >>> x, w = gauss_softplus(4)
    >>> bool(np.isclose(w.sum(), np.pi**2 / 12))
    True
    """
    t, weight = np.polynomial.legendre.leggauss(40)
    edges = np.concatenate([[0.0], 2.0 ** np.arange(-1, 8)])
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    x = (middle + half * t).ravel()
    mass = (half * weight).ravel() * np.log1p(np.exp(-x))
    basis = np.empty((n + 1, x.size))
    basis[0] = np.sqrt(mass / mass.sum())
    diagonal, off = np.empty(n), np.empty(n)
    for k in range(n):
        direction = x * basis[k]
        diagonal[k] = direction @ basis[k]
        for _ in range(2):
            direction -= basis[: k + 1].T @ (basis[: k + 1] @ direction)
        off[k] = np.linalg.norm(direction)
        basis[k + 1] = direction / off[k]
    nodes, vectors = eigh_tridiagonal(diagonal, off[:-1])
    return nodes, mass.sum() * vectors[0] ** 2


class Nodes(NamedTuple):
    """Points x = m + s z and weights w, each of shape (nodes, sites)."""

    x: Array
    z: Array
    w: Array


def gaussian_nodes(m: Array, s: Array, regions: Regions, order: int = 16) -> Nodes:
    """Nodes with Σ w f(x) = ∫ N(x|m, s²) f(x) dx for an f that bends only in the regions.

    Parameters
    ----------
    m, s : ndarray of shape (sites,)
        Means and standard deviations; s = 0 is allowed.
    regions : sequence of (centre, width)
        Each a scalar or an array of shape (sites,).
    """
    s = np.maximum(s, TINY_SD)
    own = np.broadcast_to(np.linspace(-REACH, REACH, 7)[:, None], (7, m.size))
    z, w = panel_nodes([own, *region_edges(m, s, regions)], -REACH, REACH, order)
    return Nodes(m + s * z, z, w * np.exp(-0.5 * z * z - LOG_SQRT_2PI))


def gaussian_expectation(f: Callable[[Array], Array], m: Array, s: Array, regions: Regions) -> Array:
    """∫ N(x|m, s²) f(x) dx, shape (sites,)."""
    x, _, w = gaussian_nodes(m, s, regions)
    return np.asarray(np.einsum("ks,ks->s", w, f(x)))


def tilted_nodes(
    log_f: Callable[[Array], Array], m: Array, s: Array, regions: Regions, log_concave: bool
) -> tuple[Array, Array]:
    """Nodes z and log weights with Σ exp(log w) h(z) = ∫ N(z|0, 1) f(m + s z) h(z) dz for polynomials h.

    The mass of N·f may lie far from m and be narrow: the top of the integrand is looked for first, then how
    fast it falls on either side, and panels are laid about it.
    """
    s = np.maximum(s, TINY_SD)

    def log_g(z: Array) -> Array:
        return np.asarray(-0.5 * z * z + log_f(m + s * z))

    centres = [np.broadcast_to((np.asarray(c) - m) / s, m.shape) for c, _ in regions]
    low = np.minimum.reduce([*centres, np.zeros_like(m)]) - TILTED_REACH
    high = np.maximum.reduce([*centres, np.zeros_like(m)]) + TILTED_REACH
    landmarks = region_edges(m, s, regions)
    top = _summit(log_g, low, high, landmarks)
    half, drop = _fall(log_g, top, np.array([0.5, TILTED_DROP]))
    steps = np.array([2.0, 4.0, 6.0, 9.0, 12.0, 24.0, 48.0])[:, None]
    edges = [top[None], top - half[0] * steps, top + half[1] * steps, *landmarks]
    if log_concave:
        low, high = top - drop[0], top + drop[1]
    else:
        low, high = np.minimum(low, top - TILTED_REACH), np.maximum(high, top + TILTED_REACH)
        edges.append(np.broadcast_to(np.linspace(-12.0, 12.0, 9)[:, None], (9, m.size)))
    z, w = panel_nodes(edges, low, high, 16)
    with np.errstate(divide="ignore"):
        return z, np.log(w) + log_g(z) - LOG_SQRT_2PI


def moments(z: Array, log_w: Array) -> tuple[Array, Array, Array]:
    """Log of the sum, mean and variance of nodes z with log weights, over the first axis."""
    top = log_w.max(axis=0)
    w = np.exp(log_w - top)
    total = w.sum(axis=0)
    w /= total
    centre = np.einsum("ks,ks->s", w, z)
    spread = np.einsum("ks,ks->s", w, (z - centre) ** 2)
    return top + np.log(total), centre, spread


def region_edges(m: Array, s: Array, regions: Regions) -> list[Array]:
    """Edges (edges, sites) in z about each region's centre."""
    edges = []
    for centre, width in regions:
        c = np.clip((np.asarray(centre) - m) / s, -1e15, 1e15)
        omega = np.clip(np.asarray(width) / s, 1e-15, 1e15)
        ratio = float(np.max((REACH + np.abs(c)) / omega, initial=1.0))
        far = 8.0 * 4.0 ** np.arange(1, 1 + max(0, int(np.ceil(np.log(min(ratio, 1e15) / 8.0) / np.log(4.0)))))
        steps = np.concatenate([[1.0, 2.0, 4.0, 8.0], far])
        edges.append(c + omega * np.concatenate([-steps[::-1], [0.0], steps])[:, None])
    return edges


def panel_nodes(edges: list[Array], low: Array | float, high: Array | float, order: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights (nodes, sites) on the panels between the edges in [low, high]."""
    ends = [np.broadcast_to(end, edges[0][:1].shape) for end in (low, high)]
    cut = np.sort(np.clip(np.concatenate([*edges, *ends]), low, high), axis=0)
    half, middle = 0.5 * np.diff(cut, axis=0), 0.5 * (cut[1:] + cut[:-1])
    used = np.any(half > 0, axis=1)
    used[0] = True
    half, middle = half[used, None, :], middle[used, None, :]
    t, w = _legendre(order)
    shape = (used.sum() * order, cut.shape[1])
    return (middle + half * t).reshape(shape), (half * w).reshape(shape)


def _summit(log_g: Callable[[Array], Array], low: Array, high: Array, landmarks: list[Array]) -> Array:
    """Where log_g is largest: the best of a coarse grid, then golden sections between its neighbours."""
    inside = low + (high - low) * np.linspace(0.0, 1.0, 33)[:, None]
    own = np.broadcast_to(np.linspace(-12.0, 12.0, 25)[:, None], (25, low.size))
    beyond = 4.0 ** np.arange(0, 12)[:, None]
    marks = [np.clip(edge, low, high) for edge in landmarks]
    grid = np.sort(np.concatenate([inside, own, low - beyond, high + beyond, *marks]), axis=0)
    best = np.clip(log_g(grid).argmax(axis=0), 1, len(grid) - 2)
    sites = np.arange(low.size)
    a, b = grid[best - 1, sites], grid[best + 1, sites]
    ratio = 0.5 * (np.sqrt(5.0) - 1.0)
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    gx, gy = log_g(x), log_g(y)
    for _ in range(48):
        left = gx > gy
        a, b = np.where(left, a, x), np.where(left, y, b)
        new = np.where(left, b - ratio * (b - a), a + ratio * (b - a))
        g_new = log_g(new)
        x, y = np.where(left, new, y), np.where(left, x, new)
        gx, gy = np.where(left, g_new, gy), np.where(left, gx, g_new)
    candidates = np.stack([grid[best, sites], 0.5 * (a + b)])
    return np.asarray(np.take_along_axis(candidates, log_g(candidates).argmax(axis=0)[None], axis=0)[0])


def _fall(log_g: Callable[[Array], Array], top: Array, drops: Array) -> Array:
    """Distances below and above `top` at which log_g has fallen by each drop; shape (drops, 2, sites)."""
    target = log_g(top) - drops[:, None, None]
    side = np.array([-1.0, 1.0])[None, :, None]
    shape = np.broadcast_shapes(target.shape, side.shape)
    low, high = np.full(shape, -46.0), np.full(shape, np.log(TILTED_REACH))
    for _ in range(24):
        middle = 0.5 * (low + high)
        above = log_g(top + side * np.exp(middle)) > target
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp(high)


# --- Derivatives by differences, and inverses of increasing functions.


# --- Derivatives of a vectorised function that gives only its values.


#: half-width of the stencil in units of the function's own scale, and its number of points on either side
STEP, HALF = 0.4, 6


def _stencils() -> Array:
    """Weights (3, 2·HALF + 1) of the central formulas of highest order for f′, f″ and f‴."""
    points = np.arange(-HALF, HALF + 1) / HALF
    orders = np.arange(points.size)
    rhs = np.zeros((points.size, 3))
    for derivative, factorial in ((1, 1.0), (2, 2.0), (3, 6.0)):
        rhs[derivative, derivative - 1] = factorial
    return np.asarray(np.linalg.solve(points[None, :] ** orders[:, None], rhs).T, dtype=float)


def three_derivatives(f: Callable[[Array], Array], x: Array, scale: ArrayLike) -> tuple[Array, Array, Array]:
    """f′, f″ and f‴ at x by central differences over x ± 0.4·scale, 13 points.

    For an f that is analytic within a distance `scale` of x the errors are near 1e-12, 1e-11 and 1e-9
    in units of |f| and `scale`.

    >>> first, second, third = three_derivatives(np.exp, np.array([0.5]), 1.0)
    >>> bool(abs(third[0] - np.exp(0.5)) < 1e-8)
    True
    """
    h = STEP * np.asarray(scale, dtype=float)
    points = np.arange(-HALF, HALF + 1) / HALF
    values = np.stack([f(x + h * point) for point in points])
    with np.errstate(invalid="ignore"):  # NaN where f is infinite: there is no derivative
        values = values - values[HALF]
    first, second, third = np.tensordot(_stencils(), values, axes=1)
    return first / h, second / h**2, third / h**3


def central_slope(f: Callable[[float], Array], step: float = 0.005) -> Array:
    """df/dt at t = 0 by the central formula of order six; its error is step⁶ f⁽⁷⁾/140 and 1e-16 f/step.

    >>> bool(abs(central_slope(lambda t: np.exp(np.array([t])))[0] - 1) < 1e-12)
    True
    """
    near, middle, far = (f(k * step) - f(-k * step) for k in (1, 2, 3))
    return np.asarray((45.0 * near - 9.0 * middle + far) / (60.0 * step))


# --- Quantiles from distribution functions, elementwise, between two ends that hold them.


#: most steps of a search, and its accuracy: relative in x, or of the distribution function
STEPS, NEAR = 100, 1e-12


def invert(
    cdf: Callable[[Array], Array], pdf: Callable[[Array], Array], q: ArrayLike, low: Array, high: Array
) -> Array:
    """x with cdf(x) = q: Newton's method, kept in the bracket by bisection; the lower end where it has q and more.

    Examples
    --------
    >>> invert(lambda x: x**2, lambda x: 2.0 * x, 0.25, np.array([0.0]), np.array([1.0]))
    array([0.5])
    """
    low, high = np.array(low, float), np.array(high, float)
    q = np.broadcast_to(np.asarray(q, float), low.shape)
    # such as zero, where amounts have a mass
    x = np.where(at_end := cdf(low) >= q, low, 0.5 * (low + high))
    for _ in range(STEPS):
        excess = cdf(x) - q
        low, high = np.where(excess < 0.0, x, low), np.where(excess < 0.0, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x - excess / pdf(x)
        new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
        # no nearer than the distribution function is accurate
        there = at_end | (np.abs(excess) <= NEAR)
        new = np.where(there, x, new)
        if np.all(there | (np.abs(new - x) <= NEAR * (np.abs(x) + high - low))):
            break
        x = new
    return new


def solve_quantiles(
    value_and_slope: Callable[[NDArray[np.int64], Array], tuple[Array, Array]],
    site: NDArray[np.int64],
    q: Array,
    t: Array,
    low: Array,
    high: Array,
    reach: Array,
) -> Array:
    """Newton's method for cdf(t) = q of each site, kept in a bracket by bisection; what has converged is left alone.

    Ends may be infinite: then the first step goes at most as far as `reach`, each other one ten times as far as the
    one before it.
    """
    t, reach, left = t.copy(), reach.copy(), np.arange(t.size)
    for _ in range(80):
        value, log_slope = value_and_slope(site[left], t[left])
        excess = value - q[left]
        low[left], high[left] = np.where(excess < 0, t[left], low[left]), np.where(excess < 0, high[left], t[left])
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = -excess * np.exp(-log_slope)
            new = t[left] + np.clip(np.where(np.isnan(step), 0.0, step), -reach[left], reach[left])
            middle = 0.5 * (low[left] + high[left])
        closed = np.isfinite(middle)
        new = np.where(closed & ~((new > low[left]) & (new < high[left])), middle, new)
        # no nearer than the distribution function is accurate
        there = np.abs(excess) <= 1e-12
        size = np.abs(t[left]) + np.where(closed, high[left] - low[left], 0.0)
        near = there | (np.abs(new - t[left]) <= 1e-12 * size)
        reach[left] = 10.0 * np.abs(new - t[left])
        t[left] = np.where(there, t[left], new)
        left = left[~near]
        if not left.size:
            break
    return t


def invert_whole(cdf: Callable[[Array], Array], q: ArrayLike, low: Array, high: Array) -> Array:
    """The smallest whole number k with cdf(k) ≥ q, for ends with cdf(low − 1) < q ≤ cdf(high).

    Examples
    --------
    >>> invert_whole(lambda k: (k + 1.0) / 10.0, 0.35, np.array([0.0]), np.array([9.0]))
    array([3.])
    """
    below, high = np.array(low, float) - 1.0, np.array(high, float)
    q = np.broadcast_to(np.asarray(q, float), high.shape)
    while np.any(high - below > 1.0):
        middle = np.floor(0.5 * (below + high))
        short = cdf(middle) < q
        below, high = np.where(short, middle, below), np.where(short, high, middle)
    return high
