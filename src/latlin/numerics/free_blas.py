"""Two products of SciPy's BLAS that let other threads run meanwhile: SciPy's own wrappers hold Python's lock.

The routines are those behind `scipy.linalg.blas`, called by address; matrices of rows are C-ordered.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

from latlin.numerics.arrays import Array

_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _routine(name: str, arguments: int) -> Any:
    """A routine that SciPy offers to compiled code."""
    capsule = cython_blas.__pyx_capi__[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(_pointer(capsule, _name(capsule)))


_dsyrk, _dtrmm = _routine("dsyrk", 10), _routine("dtrmm", 11)
_ONE = ctypes.c_double(1.0)


def _letter(letter: bytes) -> Any:
    return ctypes.byref(ctypes.c_char(letter))


def _size(number: int) -> Any:
    return ctypes.byref(ctypes.c_int(number))


def add_gram(rows: Array, total: Array) -> None:
    """Upper triangle of total ← total + RᵀR, for R n×d; `total` is Fortran-ordered."""
    _check(rows, total)
    n, d = rows.shape
    one, lead = ctypes.byref(_ONE), _size(max(d, 1))
    _dsyrk(_letter(b"U"), _letter(b"N"), _size(d), _size(n), one, rows.ctypes.data, lead, one, total.ctypes.data, lead)


def times_upper(rows: Array, upper: Array) -> None:
    """R ← RU, for R n×d and U upper triangular, Fortran-ordered."""
    _check(rows, upper)
    n, d = rows.shape
    # (RU)ᵀ = UᵀRᵀ, and Rᵀ is what Fortran sees
    words, lead = (_letter(b"L"), _letter(b"U"), _letter(b"T"), _letter(b"N")), _size(max(d, 1))
    _dtrmm(*words, _size(d), _size(n), ctypes.byref(_ONE), upper.ctypes.data, lead, rows.ctypes.data, lead)


def _check(rows: Array, square: Array) -> None:
    d = rows.shape[1]
    if not (rows.flags.c_contiguous and rows.dtype == np.float64):
        raise ValueError("rows must be a C-ordered matrix of float64")
    if not (square.flags.f_contiguous and square.dtype == np.float64 and square.shape == (d, d)):
        raise ValueError(f"the square matrix must be Fortran-ordered, of float64 and of shape {(d, d)}")
