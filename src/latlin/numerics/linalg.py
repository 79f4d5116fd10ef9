"""Dense linear algebra on one BLAS (SciPy's), so that hot loops do not alternate between two thread pools.

Symmetric matrices are stored in their upper triangle; factors are upper triangular, A = CᵀC.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cython_blas, lapack

from latlin.numerics.arrays import LOG_2PI, Array, empty_array
from latlin.numerics.stored import storable

# --- Two products of SciPy's BLAS that let other threads run meanwhile: SciPy's own wrappers hold Python's lock.
#
# The routines are those behind `scipy.linalg.blas`, called by address; matrices of rows are C-ordered.

#: a matrix in double or single precision
Floats = NDArray[np.floating[Any]]

_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _routine(name: str, arguments: int) -> Any:
    """A routine that SciPy offers to compiled code."""
    capsule = cython_blas.__pyx_capi__[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(_pointer(capsule, _name(capsule)))


class _Routines(NamedTuple):
    """Products of one precision, and its number one."""

    syrk: Any
    trmm: Any
    one: Any


_ROUTINES = {
    np.dtype(np.float64): _Routines(_routine("dsyrk", 10), _routine("dtrmm", 11), ctypes.c_double(1.0)),
    np.dtype(np.float32): _Routines(_routine("ssyrk", 10), _routine("strmm", 11), ctypes.c_float(1.0)),
}


def _letter(letter: bytes) -> Any:
    return ctypes.byref(ctypes.c_char(letter))


def _size(number: int) -> Any:
    return ctypes.byref(ctypes.c_int(number))


def add_gram(rows: Floats, total: Floats) -> None:
    """Upper triangle of total ← total + RᵀR, for R n×d; `total` is Fortran-ordered and of the same precision."""
    routines, (n, d) = _checked(rows, total), rows.shape
    one, lead, words = ctypes.byref(routines.one), _size(max(d, 1)), (_letter(b"U"), _letter(b"N"))
    routines.syrk(*words, _size(d), _size(n), one, rows.ctypes.data, lead, one, total.ctypes.data, lead)


def times_upper(rows: Floats, upper: Floats) -> None:
    """R ← RU, for R n×d and U upper triangular, Fortran-ordered and of the same precision."""
    routines, (n, d) = _checked(rows, upper), rows.shape
    # (RU)ᵀ = UᵀRᵀ, and Rᵀ is what Fortran sees
    words, lead = (_letter(b"L"), _letter(b"U"), _letter(b"T"), _letter(b"N")), _size(max(d, 1))
    one = ctypes.byref(routines.one)
    routines.trmm(*words, _size(d), _size(n), one, upper.ctypes.data, lead, rows.ctypes.data, lead)


def _checked(rows: Floats, square: Floats) -> _Routines:
    """The routines for both matrices."""
    d, routines = rows.shape[1], _ROUTINES.get(rows.dtype)
    if routines is None or not rows.flags.c_contiguous or rows.dtype != square.dtype:
        raise ValueError(
            "rows must be a C-ordered matrix, of float64 or float32 as the square one, "
            f"got {rows.dtype} with {square.dtype}"
        )
    if not (square.flags.f_contiguous and square.shape == (d, d)):
        raise ValueError(f"the square matrix must be Fortran-ordered and of shape {(d, d)}")
    return routines


def check_square(name: str, matrix: Array) -> None:
    """Refuse what is no square matrix, as arrays of a file may be."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got an array of shape {matrix.shape}")


#: sizes up to which the mask of a triangle is kept
SMALL = 256
#: rows that a product takes at a time, so that a weighted copy of them stays in cache
PIECE = 1024


@storable
class Cholesky(NamedTuple):
    """A + jitter·I = CᵀC, C upper triangular; `jitter` is 0 unless A was numerically indefinite."""

    factor: Array
    jitter: float

    def check_stored(self) -> None:
        check_square("factor", self.factor)

    @property
    def log_det(self) -> float:
        """log det(A)."""
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())

    def solve(self, b: Array) -> Array:
        """A⁻¹ b for one vector or the columns of a matrix."""
        return lapack.dpotrs(self.factor, b, lower=0)[0]

    def whiten(self, b: Array) -> Array:
        """C⁻ᵀ b, so that ‖C⁻ᵀ b‖² = bᵀA⁻¹b."""
        return solve_upper(self.factor, b, transposed=True)

    def unwhiten(self, b: Array) -> Array:
        """C⁻¹ b: turns a standard normal vector into one of covariance A⁻¹."""
        return solve_upper(self.factor, b)

    def inverse(self) -> Array:
        """A⁻¹, both triangles."""
        return symmetrise(lapack.dpotri(self.factor, lower=0)[0])

    def inverse_diagonal(self) -> Array:
        """The diagonal of A⁻¹."""
        return np.diagonal(lapack.dpotri(self.factor, lower=0)[0]).copy()


def cholesky(a: Array, *, name: str = "matrix", max_jitter: float = 0.0, overwrite: bool = False) -> Cholesky:
    """Factorise a symmetric positive definite matrix given by its upper triangle.

    Parameters
    ----------
    a : ndarray of shape (n, n)
    name : str
        What the matrix is, for the error's text.
    max_jitter : float
        Largest multiple of the mean diagonal that may be added when `a` is not numerically positive definite.
        What was added is reported in `Cholesky.jitter`.
    overwrite : bool
        `a` (Fortran-ordered) may be destroyed.

    Raises
    ------
    ValueError
        When no allowed jitter makes the factorisation succeed.
    """
    factor, info = lapack.dpotrf(a, lower=0, clean=1, overwrite_a=overwrite and max_jitter == 0.0)
    if info == 0 and (not len(factor) or np.isfinite(factor[-1, -1])):
        return Cholesky(factor, 0.0)
    scale = float(np.abs(np.diagonal(a)).mean()) if max_jitter > 0.0 else 0.0
    share = 1e-14
    while 0.0 < share <= max_jitter and np.isfinite(scale):
        factor, info = lapack.dpotrf(a + share * scale * np.eye(len(a)), lower=0, clean=1)
        if info == 0:
            return Cholesky(factor, share * scale)
        share *= 10.0
    raise ValueError(f"{name} is not positive definite (Cholesky broke down at row {max(info, 1)} of {len(a)})")


def symmetrise(a: Array) -> Array:
    """The full symmetric matrix whose upper triangle is that of `a`."""
    n = len(a)
    full = np.array(a, order="C")
    np.copyto(full, a.T, where=_small_triangle(n) if n <= SMALL else np.tri(n, k=-1, dtype=bool))
    return full


@lru_cache(maxsize=16)
def _small_triangle(n: int) -> NDArray[np.bool_]:
    """Where a small matrix is below its diagonal: made once per size, since streams ask for it at every row."""
    below = np.tri(n, k=-1, dtype=bool)
    below.flags.writeable = False
    return below


def solve_upper(c: Array, b: Array, *, transposed: bool = False) -> Array:
    """C⁻¹b, or C⁻ᵀb, for upper triangular C and a vector or matrix b."""
    columns = b if b.ndim == 2 else b[:, None]
    solved = blas.dtrsm(1.0, c, columns, lower=0, trans_a=int(transposed))
    return solved if b.ndim == 2 else solved[:, 0]


def dot(a: Array, b: Array) -> float:
    """aᵀb by SciPy's BLAS."""
    return float(blas.ddot(a, b)) if len(a) else 0.0


def log_det(c: Array) -> float:
    """log det(CᵀC) of a triangular factor."""
    return 2.0 * float(np.log(np.abs(np.diagonal(c))).sum())


def longest_product(rows: int, dim: int) -> float:
    """Multiplications of half of a Gram matrix, in the smaller of two spaces, of as many rows as it takes at a time."""
    return 0.5 * min(max(rows, dim), PIECE) * float(min(rows, dim)) ** 2


def gram(rows: Array, weights: Array | None = None, *, block: int = PIECE) -> Array:
    """Upper triangle of Σ_n weights_n r_n r_nᵀ over the rows of a C-ordered N×D matrix.

    Works on blocks of rows in one buffer, so that the weighted copy stays in cache; weights may be negative.
    """
    n, d = rows.shape
    total = np.zeros((d, d), order="F")
    if weights is None:
        return blas.dsyrk(1.0, rows.T, beta=1.0, c=total, overwrite_c=1)
    if n and weights.max() < 0.0:
        return np.negative(gram(rows, -weights, block=block))
    root, negative = np.sqrt(np.abs(weights)), weights < 0.0
    buffer = empty_array(min(block, n), d)
    for start in range(0, n, block):
        span = slice(start, min(start + block, n))
        scaled = np.multiply(rows[span], root[span, None], out=buffer[: span.stop - start])
        below = negative[span]
        if below.any():
            add_gram(scaled[~below], total)
            total = blas.dsyrk(-1.0, scaled[below].T, beta=1.0, c=total, overwrite_c=1)
        else:
            add_gram(scaled, total)
    return total


#: largest entry up to which a Gram matrix in single precision is near enough for a step that a search safeguards
SINGLE = 1e5


def rough_gram(rows: Array, weights: Array, *, block: int = PIECE) -> Array:
    """As `gram`, to seven digits of its largest entry; to all where a weight is negative or an entry large."""
    n, d = rows.shape
    if np.any(weights < 0.0):
        return gram(rows, weights, block=block)
    total = np.zeros((d, d), dtype=np.float32, order="F")
    root, buffer = np.sqrt(weights), np.empty((min(block, n), d), dtype=np.float32)
    with np.errstate(over="ignore"):
        for start in range(0, n, block):
            part = buffer[: min(block, n - start)]
            np.multiply(rows[start : start + block], root[start : start + block, None], out=part, casting="same_kind")
            add_gram(part, total)
    largest = np.diagonal(total).max(initial=0.0)
    return total.astype(float, order="F") if largest <= SINGLE else gram(rows, weights, block=block)


def whitened_squares(c: Array, rows: Array, *, block: int = PIECE) -> Array:
    """‖C⁻ᵀ r_n‖² for every row of a C-ordered N×D matrix: the variances r_nᵀ(CᵀC)⁻¹r_n."""
    if len(rows) <= rows.shape[1]:
        solved = blas.dtrsm(1.0, c, rows.T, lower=0, trans_a=1)
        return np.einsum("dn,dn->n", solved, solved)
    squares = np.empty(len(rows))
    buffer = empty_array(min(block, len(rows)), rows.shape[1])
    # products with C⁻¹ take half the time of solves with C, and no lock of Python's
    inverse, fault = lapack.dtrtri(c, lower=0)
    if fault:
        raise ValueError(f"the triangular factor is singular: entry {fault} of its diagonal is zero")
    for start in range(0, len(rows), block):
        part = buffer[: min(block, len(rows) - start)]
        np.copyto(part, rows[start : start + block])
        times_upper(part, inverse)
        squares[start : start + block] = np.einsum("nd,nd->n", part, part)
    return squares


def rough_whitened_squares(c: Array, rows: Array, *, block: int = PIECE) -> Array:
    """As `whitened_squares`, by products in single precision: to seven digits of the largest term of each."""
    inverse, fault = lapack.dtrtri(c, lower=0)
    if fault or np.abs(inverse).max(initial=0.0) > SINGLE:
        return whitened_squares(c, rows, block=block)
    squares, upper = np.empty(len(rows)), inverse.astype(np.float32, order="F")
    buffer = np.empty((min(block, len(rows)), rows.shape[1]), dtype=np.float32)
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), block):
            part = buffer[: min(block, len(rows) - start)]
            np.copyto(part, rows[start : start + block], casting="same_kind")
            times_upper(part, upper)
            squares[start : start + block] = np.einsum("nd,nd->n", part, part)
    return squares


# --- The Gaussian N(c, FFᵀ + Ψ) with K factors and a diagonal Ψ, without ever forming a d×d matrix.
#
# Loadings are stored as Fᵀ, one factor per row (K×d), so that long vectors are contiguous. Every sum over the d
# coordinates runs over blocks in float64, whatever the storage. Woodbury's identity with M = I + FᵀΨ⁻¹F gives
#
#     (FFᵀ + Ψ)⁻¹ = Ψ⁻¹ − Ψ⁻¹F M⁻¹ FᵀΨ⁻¹,    log det(FFᵀ + Ψ) = log det M + Σ_i log ψ_i.
#
# Source: Brownlie (2021), eqs. 3.3, 3.25, 3.26; Challis (2013), eq. 2.1.10.


def slices_of(dim: int, width: int = 65536) -> Iterator[slice]:
    """Consecutive slices that cover `range(dim)`."""
    return (slice(start, min(start + width, dim)) for start in range(0, dim, width))


class LowRankNormal(NamedTuple):
    """N(mean, loadingsᵀ loadings + diag(noise)).

    Attributes
    ----------
    mean : ndarray of shape (d,)
    loadings : ndarray of shape (K, d)
    noise : ndarray of shape (d,)
        Positive variances.
    """

    mean: NDArray[np.floating]
    loadings: NDArray[np.floating]
    noise: NDArray[np.floating]

    def latent_precision(self) -> Cholesky:
        """The factorised M = I + FᵀΨ⁻¹F, the posterior precision of the latents."""
        return cholesky(np.eye(len(self.loadings)) + weighted_gram(self.loadings, self.noise), name="I + FᵀΨ⁻¹F")

    def latent_means(self, rows: NDArray[np.floating]) -> Array:
        """Posterior means m_n = M⁻¹FᵀΨ⁻¹(x_n − c) of the latents, shape (n, K)."""
        return self.latent_precision().solve(self._project(rows)[0]).T

    def log_det(self) -> float:
        """log det(FFᵀ + Ψ)."""
        logs = sum(float(np.log(self.noise[part], dtype=np.float64).sum()) for part in slices_of(len(self.noise)))
        return self.latent_precision().log_det + logs

    def mahalanobis(self, rows: NDArray[np.floating]) -> Array:
        """(x_n − c)ᵀ(FFᵀ + Ψ)⁻¹(x_n − c) for every row."""
        projected, squares = self._project(rows)
        # dᵀΨ⁻¹d − ‖M^{−½} FᵀΨ⁻¹d‖²
        whitened = self.latent_precision().whiten(projected)
        return np.maximum(squares - np.einsum("kn,kn->n", whitened, whitened), 0.0)

    def logpdf(self, rows: NDArray[np.floating]) -> Array:
        """log N(x_n | c, FFᵀ + Ψ) for every row, with every constant."""
        return -0.5 * (self.mahalanobis(rows) + self.log_det() + len(self.mean) * LOG_2PI)

    def sample(self, n: int, random: np.random.Generator, *, scale: float = 1.0) -> NDArray[np.floating]:
        """`n` draws c + scale·(Fh + Ψ^{½}ε), in the storage's precision."""
        draws = np.empty((n, len(self.mean)), dtype=self.loadings.dtype)
        h = scale * random.standard_normal((n, len(self.loadings)))
        for part in slices_of(len(self.mean)):
            noise = scale * np.sqrt(self.noise[part], dtype=np.float64)
            epsilon = random.standard_normal((n, len(noise)))
            draws[:, part] = self.mean[part] + h @ self.loadings[:, part].astype(np.float64) + epsilon * noise
        return draws

    def _project(self, rows: NDArray[np.floating]) -> tuple[Array, Array]:
        """FᵀΨ⁻¹(x_n − c) as the columns of a K×n matrix, and (x_n − c)ᵀΨ⁻¹(x_n − c)."""
        projected = np.zeros((len(self.loadings), len(rows)))
        squares = np.zeros(len(rows))
        for part in slices_of(len(self.mean)):
            root = np.sqrt(self.noise[part], dtype=np.float64)
            d = (rows[:, part].astype(np.float64) - self.mean[part]) / root
            projected += (self.loadings[:, part] / root) @ d.T
            squares += np.einsum("nd,nd->n", d, d)
        return projected, squares


def weighted_gram(loadings: NDArray[np.floating], noise: NDArray[np.floating]) -> Array:
    """FᵀΨ⁻¹F, shape (K, K), in float64."""
    total = np.zeros((len(loadings), len(loadings)))
    for part in slices_of(len(noise)):
        scaled = loadings[:, part] / np.sqrt(noise[part], dtype=np.float64)
        total += scaled @ scaled.T
    return total
