"""Expectations under sums of independent variables, from their characteristic functions; compiled.

For z = Σ_d a_d v_d the density on a window of half-width R is the Fourier series of its characteristic function
Φ(t) = ∏_d φ_d(a_d t) at t_j = πj/R, so that

    ⟨f⟩ = (1/2R) [C_0 + 2 Re Σ_{j≥1} C_j Φ(t_j)],   C_j = ∫ f(z) e^{−it_j z} dz.

C_j does not depend on a: every derivative is a sum over the same frequencies with one factor of Φ exchanged, and the
products without one factor come from a running product forwards and one backwards, never from a division.

Characteristic functions come as tables over u = √s (even in u, so that mirrored nodes continue them below zero), read
by six-point interpolation. A row of a table holds Re φ, Im φ, Re φ′, Im φ′.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit, run_together

Integers = NDArray[np.int64]
#: mirrored nodes before u = 0, and nodes of margin at the end
PAD = 2
MARGIN = 4
#: weights of a projection below this leave its characteristic function as it is
NOTHING = 1e-9
FAST = {"reassoc", "contract", "nsz", "arcp"}
# whole arrays as operands would take the compiler many times as long as the loops that are written out here
_inner = njit(**INNER, fastmath=FAST, error_model="numpy")


@njit(cache=True)
def cut_frequencies(a: Array, row: Integers, log_size: Array, step: float, floor: float, last: float) -> Array:
    """Frequency after which |Φ_n| stays below e^floor, looked for downwards from `last` in steps of a tenth.

    `log_size` is log |φ| on the table's nodes, read at the nearest one; a zero of Φ on the way does not end the search.
    """
    sites, dim = a.shape
    nodes = log_size.shape[1]
    cuts = np.empty(sites)
    for n in range(sites):
        t = cuts[n] = last
        while t > 1.0:
            total = 0.0
            for d in range(dim):
                k = PAD + int(np.sqrt(abs(a[n, d]) * t) / step + 0.5)
                total += log_size[row[d], k] if k < nodes else -40.0
                if total < floor:
                    break
            if total >= floor:
                break
            cuts[n] = t
            t /= 1.1
    return cuts


@_inner
def _active(a: Array, used: Integers, root: Array, sign: Array) -> int:
    """Indices, roots and signs of the weights that count; returns how many."""
    active = 0
    for d in range(len(a)):
        if abs(a[d]) > NOTHING:
            used[active], root[active] = d, np.sqrt(abs(a[d]))
            sign[active] = 1.0 if a[d] > 0.0 else -1.0
            active += 1
    return active


@_inner
def _transform(f: Array, z: Array, width: float, c_re: Array, c_im: Array) -> None:
    """C_j/R = Σ_k f_k e^{−it_j z_k}/R, turning every e^{−itz} from one frequency to the next."""
    turn_c, turn_s, cosine, sine = np.empty(len(z)), np.empty(len(z)), np.empty(len(z)), np.empty(len(z))
    for k in range(len(z)):
        angle = math.pi / width * z[k]
        turn_c[k], turn_s[k], cosine[k], sine[k] = math.cos(angle), -math.sin(angle), 1.0, 0.0
    for j in range(len(c_re)):
        re, im = 0.0, 0.0
        for k in range(len(f)):
            turned = cosine[k] * turn_c[k] - sine[k] * turn_s[k]
            sine[k] = cosine[k] * turn_s[k] + sine[k] * turn_c[k]
            cosine[k] = turned
            re += f[k] * turned
            im += f[k] * sine[k]
        c_re[j], c_im[j] = re / width, im / width


@_inner
def _read(table: Array, root: float, roots: Array, sign: float, phi: Array) -> None:
    """φ and φ′ at ±(root·roots_j)² into the four rows of `phi`: six-point Lagrange, zero beyond the table."""
    last = table.shape[1] - PAD - MARGIN
    for j in range(len(roots)):
        u = root * roots[j]
        k = min(int(u), last)
        inside = 1.0 if u < last else 0.0
        f = (u - k) * inside
        a, b, d, e, g = f + 2.0, f + 1.0, f - 1.0, f - 2.0, f - 3.0
        ab, bc, fd, de, eg = a * b, b * f, f * d, d * e, e * g
        w0, w1, w2 = -bc * de * g / 120.0, a * fd * eg / 24.0, -ab * de * g / 12.0
        w3, w4, w5 = ab * f * eg / 12.0, -ab * fd * g / 24.0, ab * fd * e / 120.0
        for c in range(4):
            phi[c, j] = inside * (
                w0 * table[c, k]
                + w1 * table[c, k + 1]
                + w2 * table[c, k + 2]
                + w3 * table[c, k + 3]
                + w4 * table[c, k + 4]
                + w5 * table[c, k + 5]
            )
    # φ(−s) is the conjugate of φ(s), and φ′(−s) minus the conjugate of φ′(s)
    if sign < 0.0:
        for j in range(len(roots)):
            phi[1, j], phi[2, j] = -phi[1, j], -phi[2, j]


@_inner
def _scatter(root: float, roots: Array, sign: float, m_re: Array, m_im: Array, d_table: Array) -> None:
    """The transpose of `_read` for φ: add Re λ and −Im λ to the nodes of each stencil."""
    last = d_table.shape[1] - PAD - MARGIN
    for j in range(len(roots)):
        u = root * roots[j]
        if u >= last:
            continue
        k = int(u)
        f = u - k
        a, b, d, e, g = f + 2.0, f + 1.0, f - 1.0, f - 2.0, f - 3.0
        ab, bc, fd, de, eg = a * b, b * f, f * d, d * e, e * g
        w = (
            -bc * de * g / 120.0,
            a * fd * eg / 24.0,
            -ab * de * g / 12.0,
            ab * f * eg / 12.0,
            -ab * fd * g / 24.0,
            ab * fd * e / 120.0,
        )
        for m in range(6):
            d_table[0, k + m] += w[m] * m_re[j]
            d_table[1, k + m] -= w[m] * m_im[j] * sign


@_inner
def _multiply(p: Array, q: Array, out: Array) -> None:
    """Products of complex numbers held as rows (Re, Im)."""
    for j in range(p.shape[1]):
        re = p[0, j] * q[0, j] - p[1, j] * q[1, j]
        out[1, j] = p[0, j] * q[1, j] + p[1, j] * q[0, j]
        out[0, j] = re


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _sites(
    chunk: int,
    chunks: int,
    f: Array,
    z: Array,
    half_width: Array,
    counts: Integers,
    a: Array,
    row: Integers,
    table: Array,
    step: float,
    value: Array,
    d_shift: Array,
    d_a: Array,
    d_table: Array,
) -> None:
    """Every `chunks`-th site of `expectations` from `chunk` on."""
    dim = a.shape[1]
    used, root, sign = np.empty(dim, np.int64), np.empty(dim), np.empty(dim)
    for n in range(chunk, len(value), chunks):
        width, count = half_width[n], counts[n]
        active = _active(a[n], used, root, sign)
        t, roots = np.empty(count), np.empty(count)
        for j in range(count):
            t[j] = math.pi / width * (j + 1)
            roots[j] = math.sqrt(t[j]) / step
        # rows Re and Im of (C_j/R) ∏ φ_e over the factors behind, and of the products of those before
        behind, phi = np.empty((2, count)), np.empty((active, 4, count))
        before, without = np.empty((active + 1, 2, count)), np.empty((2, count))
        _transform(f[n], z[n], width, behind[0], behind[1])
        for j in range(count):
            before[0, 0, j], before[0, 1, j] = 1.0, 0.0
        for i in range(active):
            _read(table[row[used[i]]], root[i], roots, sign[i], phi[i])
            _multiply(before[i], phi[i], before[i + 1])
        _multiply(behind, before[active], without)
        total, shifted = 0.0, 0.0
        for k in range(f.shape[1]):
            total += f[n, k]
        total *= 0.5 / width
        # a shift multiplies Φ by e^{it}
        for j in range(count):
            total += without[0, j]
            shifted -= t[j] * without[1, j]
        value[n], d_shift[n] = total, shifted
        for i in range(active - 1, -1, -1):
            _multiply(behind, before[i], without)
            slope = 0.0
            for j in range(count):
                slope += t[j] * (without[0, j] * phi[i, 2, j] - without[1, j] * phi[i, 3, j])
            d_a[n, used[i]] = slope
            if d_table.shape[1] > 0:
                _scatter(root[i], roots, sign[i], without[0], without[1], d_table[chunk, row[used[i]]])
            _multiply(behind, phi[i], behind)


def expectations(
    f: Array,
    z: Array,
    half_width: Array,
    counts: Integers,
    a: Array,
    row: Integers,
    table: Array,
    step: float,
    chunks: int,
    with_shapes: bool,
) -> tuple[Array, Array, Array, Array]:
    """⟨f_n⟩ for every site, with derivatives.

    Parameters
    ----------
    f, z : ndarray of shape (sites, nodes)
        Integrand times quadrature weight, and where it was evaluated, −R ≤ z ≤ R.
    half_width : ndarray of shape (sites,)
        R.
    counts : ndarray of int of shape (sites,)
        Number of positive frequencies.
    a : ndarray of shape (sites, dim)
        Weights of the independent variables; their squares sum to one.
    row : ndarray of int of shape (dim,)
        Row of the table that belongs to each variable.
    table : ndarray of shape (rows, 4, nodes)
    step : float
        Spacing of the table in √s.
    chunks : int
        Blocks of sites that run side by side.
    with_shapes : bool
        Also give the derivatives with respect to the table.

    Returns
    -------
    value, d_shift : ndarray of shape (sites,)
        The expectation and its derivative with respect to a shift of z.
    d_a : ndarray of shape (sites, dim)
    d_table : ndarray of shape (chunks, rows, 2, nodes)
        Derivative with respect to Re φ and Im φ at the nodes (no rows unless asked for).
    """
    sites, dim = a.shape
    value, d_shift, d_a = np.zeros(sites), np.zeros(sites), np.zeros((sites, dim))
    d_table = np.zeros((chunks, len(table) if with_shapes else 0, 2, table.shape[2]))
    arrays = f, z, half_width, counts, a, row, table, step, value, d_shift, d_a, d_table
    run_together(_sites, [(chunk, chunks, *arrays) for chunk in range(chunks)])
    return value, d_shift, d_a, d_table


@njit(cache=True)
def products(
    half_width: Array, counts: Integers, a: Array, row: Integers, table: Array, step: float
) -> NDArray[np.complex128]:
    """Φ_n(t_j) = ∏_d φ_d(a_nd t_j) at t_j = πj/R_n, zero from `counts` on; shape (sites, max(counts) + 1)."""
    sites, dim = a.shape
    found = np.zeros((sites, counts.max() + 1), np.complex128)
    for n in range(sites):
        roots, phi = np.empty(counts[n]), np.empty((4, counts[n]))
        for j in range(counts[n]):
            roots[j] = math.sqrt(math.pi / half_width[n] * (j + 1)) / step
        for j in range(counts[n] + 1):
            found[n, j] = 1.0
        for d in range(dim):
            x = a[n, d]
            _read(table[row[d]], math.sqrt(abs(x)), roots, -1.0 if x < 0.0 else 1.0, phi)
            for j in range(counts[n]):
                found[n, j + 1] *= complex(phi[0, j], phi[1, j])
    return found


@njit(cache=True, fastmath=FAST)
def density_and_distribution(
    z: Array, half_width: Array, counts: Integers, phi: NDArray[np.complex128]
) -> tuple[Array, Array]:
    """The folded density and its integral from −R, for z of shape (points, sites) inside the windows.

    q(z) = (1/2R)[1 + 2 Re Σ_j Φ_j e^{−it_j z}] and F(z) = (z + R)/2R + (1/R) Re Σ_j Φ_j i (e^{−it_j z} − (−1)^j)/t_j.
    """
    points, sites = z.shape
    density, distribution = np.empty((points, sites)), np.empty((points, sites))
    for p in range(points):
        for n in range(sites):
            width = half_width[n]
            dt = np.pi / width
            turn_c, turn_s = np.cos(dt * z[p, n]), -np.sin(dt * z[p, n])
            c, s, end = 1.0, 0.0, 1.0
            q, mass = 0.5, 0.5 * (z[p, n] + width)
            for j in range(1, counts[n] + 1):
                c, s = c * turn_c - s * turn_s, c * turn_s + s * turn_c
                end = -end
                re, im = phi[n, j].real, phi[n, j].imag
                q += re * c - im * s
                mass -= (re * s + im * (c - end)) / (j * dt)
            density[p, n], distribution[p, n] = q / width, mass / width
    return density, distribution
