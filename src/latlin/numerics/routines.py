"""BLAS and LAPACK inside compiled loops: SciPy's own routines, called by address, with every argument a pointer.

A compiled function that holds an address cannot be kept on disk, so addresses are arguments: `ROUTINES` is an array of
them. Matrices are column-major parts of one-dimensional arrays, given by the address of their first entry; sizes and
letters stand in small arrays (`Workspace`), because Fortran wants their addresses.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

from latlin.numerics.threads import INNER, njit

#: places in `ROUTINES`
GEMM, SYMM, TRSM, POTRF, POTRI = range(5)


def _address(library: Any, name: str) -> int:
    """Where a routine that SciPy offers to compiled code stands."""
    capsule = library.__pyx_capi__[name]
    word = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))(capsule)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return int(pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, word))


ROUTINES = np.array(
    [
        _address(cython_blas, "dgemm"),
        _address(cython_blas, "dsymm"),
        _address(cython_blas, "dtrsm"),
        _address(cython_lapack, "dpotrf"),
        _address(cython_lapack, "dpotri"),
    ],
    np.int64,
)


class Workspace(NamedTuple):
    """Where arguments are put: letters "LUNTR", whole numbers and two factors."""

    letters: NDArray[np.uint8]
    numbers: NDArray[np.int32]
    factors: NDArray[np.float64]


def make_workspace() -> Workspace:
    """A new one; threads do not share it."""
    return Workspace(np.frombuffer(b"LUNTR", np.uint8).copy(), np.zeros(8, np.int32), np.zeros(2))


def _call_routine(context: Any, address: Any, pointers: Any) -> Any:
    """Call the routine at an address with a tuple of pointers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(8).as_pointer()
        values = cgutils.unpack_tuple(builder, arguments[1])
        kind = ir.FunctionType(ir.VoidType(), [word] * len(values)).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), [builder.inttoptr(value, word) for value in values])
        return context.get_dummy_value()

    return types.void(types.int64, pointers), generate


_call: Any = intrinsic(_call_routine)


@njit(**INNER)
def times_transposed(
    routines: NDArray[np.int64], d: Workspace, m: int, n: int, k: int, a: int, b: int, lead: int, c: int
) -> None:
    """C ← ABᵀ for A m×k and B n×k with one leading dimension, C m×n."""
    letter, number, factor = d.letters.ctypes.data, d.numbers.ctypes.data, d.factors.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2], d.numbers[3], d.numbers[4] = m, n, k, lead, m
    d.factors[0], d.factors[1] = 1.0, 0.0
    _call(
        routines[GEMM],
        (
            letter + 2,
            letter + 3,
            number,
            number + 4,
            number + 8,
            factor,
            a,
            number + 12,
            b,
            number + 12,
            factor + 8,
            c,
            number + 16,
        ),
    )


@njit(**INNER)
def subtract_transposed_times(
    routines: NDArray[np.int64], d: Workspace, n: int, k: int, a: int, lead_a: int, b: int, c: int, lead: int
) -> None:
    """C ← C − AᵀB for A and B k×n, C n×n; b and c share the leading dimension `lead`."""
    letter, number, factor = d.letters.ctypes.data, d.numbers.ctypes.data, d.factors.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2], d.numbers[3] = n, k, lead_a, lead
    d.factors[0], d.factors[1] = -1.0, 1.0
    _call(
        routines[GEMM],
        (
            letter + 3,
            letter + 2,
            number,
            number,
            number + 4,
            factor,
            a,
            number + 8,
            b,
            number + 12,
            factor + 8,
            c,
            number + 12,
        ),
    )


@njit(**INNER)
def minus_symmetric_times(
    routines: NDArray[np.int64], d: Workspace, m: int, n: int, a: int, b: int, c: int, lead: int
) -> None:
    """C ← −AB for a symmetric A m×m (lower triangle) and B m×n, both without gaps; C has leading dimension `lead`."""
    letter, number, factor = d.letters.ctypes.data, d.numbers.ctypes.data, d.factors.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2] = m, n, lead
    d.factors[0], d.factors[1] = -1.0, 0.0
    _call(
        routines[SYMM],
        (letter, letter, number, number + 4, factor, a, number, b, number, factor + 8, c, number + 8),
    )


@njit(**INNER)
def solve_right(
    routines: NDArray[np.int64],
    d: Workspace,
    m: int,
    n: int,
    triangle: int,
    lead: int,
    b: int,
    lead_b: int,
    transposed: bool,
) -> None:
    """B ← BT⁻¹ or BT⁻ᵀ for a lower triangular T n×n and B m×n."""
    letter, number, factor = d.letters.ctypes.data, d.numbers.ctypes.data, d.factors.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2], d.numbers[3] = m, n, lead, lead_b
    d.factors[0] = 1.0
    turn = letter + 3 if transposed else letter + 2
    _call(
        routines[TRSM],
        (letter + 4, letter, turn, letter + 2, number, number + 4, factor, triangle, number + 8, b, number + 12),
    )


@njit(**INNER)
def factorise_lower(routines: NDArray[np.int64], d: Workspace, n: int, a: int, lead: int) -> int:
    """A ← its lower Cholesky factor; returns the column without a positive pivot, or −1."""
    number = d.numbers.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2] = n, lead, 0
    _call(routines[POTRF], (d.letters.ctypes.data, number, a, number + 4, number + 8))
    return d.numbers[2] - 1


@njit(**INNER)
def invert_lower(routines: NDArray[np.int64], d: Workspace, n: int, a: int, lead: int) -> None:
    """The lower Cholesky factor in A ← the lower triangle of the inverse of the matrix it is the factor of."""
    number = d.numbers.ctypes.data
    d.numbers[0], d.numbers[1], d.numbers[2] = n, lead, 0
    _call(routines[POTRI], (d.letters.ctypes.data, number, a, number + 4, number + 8))
