"""The problem object: Gaussian factors and blocks of scalar sites on linear projections of w.

    p(w) = 1/Z ∏_m N(H_m w | μ_m, Σ_m) ∏_n φ_n(h_nᵀw + o_n)^{weight_n}

Challis (2013), eq. 2.3.1. Everything is checked here, once; nothing downstream checks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky
from latlin.numerics.magnitude import summable
from latlin.numerics.visible import visible
from latlin.potentials.base import Potential


class _Sealed:
    """What is built once and then only read; arrays such as H are kept as they came, not copied."""

    def _seal(self) -> None:
        self.__dict__["_sealed"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_sealed" in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is immutable: make a new one instead of setting {name}")
        super().__setattr__(name, value)


class GaussianFactor(_Sealed):
    """N(Hw | mean, cov).

    Parameters
    ----------
    mean : float or array of shape (m,)
    cov : float, array of shape (m,) or array of shape (m, m)
        Variance, variances or covariance matrix.
    H : array or sparse matrix of shape (m, dim), optional
        Projection; without it the factor is on w itself.
    dim : int, optional
        Length of w; needed only when nothing else in the model says it.
    """

    def __init__(self, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0, H: Any = None, dim: int | None = None) -> None:
        self.mean = _finite(mean, "GaussianFactor mean", max_ndim=1)
        self.cov = _finite(cov, "GaussianFactor cov", max_ndim=2)
        self.H: Any = None if H is None else checked_matrix(dense_operator(H), "GaussianFactor H")
        self.size = self._common_size(dim)
        self.dim = self.size if self.H is None else self.H.shape[1]
        if dim is not None and self.dim != dim:
            raise ValueError(f"GaussianFactor dim is {dim}, but its other arguments have dimension {self.dim}")
        self.factor = self._check_covariance()
        self._seal()

    def _common_size(self, dim: int | None) -> int | None:
        sizes = {"mean": self.mean.shape, "cov": self.cov.shape}
        known = {name: shape[0] for name, shape in sizes.items() if shape}
        if self.H is not None:
            known["H"] = self.H.shape[0]
        elif dim is not None:
            known["dim"] = _positive_int(dim, "GaussianFactor dim")
        if len(set(known.values())) > 1:
            raise ValueError(f"GaussianFactor arguments differ in length: {known}")
        return next(iter(known.values()), None)

    def _check_covariance(self) -> Array | None:
        if self.cov.ndim < 2:
            if np.any(self.cov <= 0.0):
                raise ValueError(f"GaussianFactor cov must be positive, got {self.cov.min():g}")
            return None
        if self.cov.shape[0] != self.cov.shape[1]:
            raise ValueError(f"GaussianFactor cov must be square, got shape {self.cov.shape}")
        # most are symmetric to the last bit, which is seen without making other matrices
        asymmetry = 0.0 if np.array_equal(self.cov, self.cov.T) else float(np.abs(self.cov - self.cov.T).max())
        if asymmetry and asymmetry > 1e-8 * float(np.abs(self.cov).max()):
            raise ValueError(f"GaussianFactor cov must be symmetric, got entries that differ by {asymmetry:g}")
        return cholesky(self.cov, name="GaussianFactor cov").factor

    def __repr__(self) -> str:
        kind = ("scalar", "diagonal", "full")[self.cov.ndim]
        on = "w" if self.H is None else f"{self.H.shape[0]} projections of w"
        return f"GaussianFactor({kind} covariance on {on})"


class SiteFactor(_Sealed):
    """∏_n φ_n(h_nᵀw + offset_n)^{weight_n}.

    Parameters
    ----------
    H : array, sparse matrix or LinearOperator of shape (n, dim), or None
        Rows are the projections h_n; None puts the sites on the coordinates of w.
    potential : Potential
        One site a row, see `latlin.potentials`.
    weight : float or array of shape (n,), optional
        Non-negative exponents; a weight of 2 counts a site twice.
    offset : float or array of shape (n,), optional
    """

    def __init__(
        self,
        H: Any,
        potential: Potential,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        if not isinstance(potential, Potential):
            raise ValueError(f"SiteFactor potential must be a latlin potential, got {type(potential).__name__}")
        self.potential = potential
        self.H: Any = None if H is None else checked_matrix(H, "SiteFactor H")
        self.weight = None if weight is None else _finite(weight, "SiteFactor weight", max_ndim=1)
        self.offset = None if offset is None else _finite(offset, "SiteFactor offset", max_ndim=1)
        if self.weight is not None and np.any(self.weight < 0.0):
            raise ValueError(f"SiteFactor weight must not be negative, got {self.weight.min():g}")
        self.size = self._common_size()
        self.dim = self.size if self.H is None else self.H.shape[1]
        self._seal()

    def _common_size(self) -> int | None:
        known = {"H": None if self.H is None else self.H.shape[0], "potential": self.potential.size}
        known |= {
            name: len(value)
            for name in ("weight", "offset")
            if (value := getattr(self, name)) is not None and value.ndim == 1
        }
        sizes = {name: size for name, size in known.items() if size is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"SiteFactor arguments differ in their number of sites: {sizes}")
        return next(iter(sizes.values()), None)

    def __repr__(self) -> str:
        on = "the coordinates of w" if self.H is None else f"{self.H.shape[0]} projections of w"
        return f"SiteFactor({type(self.potential).__name__} on {on})"


@dataclass(frozen=True, init=False, repr=False)
class LatentLinearModel:
    """A product of Gaussian factors and blocks of sites; see the module.

    Parameters
    ----------
    factors : list of GaussianFactor and SiteFactor

    Attributes
    ----------
    dim : int
        Length of w.
    gaussians, sites : tuple
        The factors by kind, in the order given.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, potentials
    >>> X, y = np.array([[1.0, 0.5], [0.2, -1.0]]), [1, 0]
    >>> LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit(y))])
    LatentLinearModel(dim=2: GaussianFactor(scalar covariance on w), SiteFactor(Logit on 2 projections of w))
    """

    gaussians: tuple[GaussianFactor, ...]
    sites: tuple[SiteFactor, ...]
    dim: int

    def __init__(self, factors: Iterable[GaussianFactor | SiteFactor]) -> None:
        if not isinstance(factors, Iterable):
            raise ValueError(f"factors must be a list of factors, got {type(factors).__name__}")
        listed = list(factors)
        for factor in listed:
            if not isinstance(factor, GaussianFactor | SiteFactor):
                raise ValueError(f"factors must be GaussianFactor or SiteFactor, got {type(factor).__name__}")
        if not listed:
            raise ValueError("factors must name at least one factor, got none")
        object.__setattr__(self, "gaussians", tuple(f for f in listed if isinstance(f, GaussianFactor)))
        object.__setattr__(self, "sites", tuple(f for f in listed if isinstance(f, SiteFactor)))
        object.__setattr__(self, "dim", _common_dim(listed))

    def among(self, factors: Iterable[GaussianFactor | SiteFactor]) -> LatentLinearModel:
        """Some of the factors, on a w of the same length."""
        listed, part = list(factors), object.__new__(LatentLinearModel)
        object.__setattr__(part, "gaussians", tuple(f for f in listed if isinstance(f, GaussianFactor)))
        object.__setattr__(part, "sites", tuple(f for f in listed if isinstance(f, SiteFactor)))
        object.__setattr__(part, "dim", self.dim)
        return part

    def site_count(self, factor: SiteFactor) -> int:
        """Number of sites of a factor; one on the coordinates has `dim` of them."""
        return self.dim if factor.size is None else factor.size

    def __repr__(self) -> str:
        return f"LatentLinearModel(dim={self.dim}: {', '.join(map(repr, (*self.gaussians, *self.sites)))})"


def _common_dim(factors: list[GaussianFactor | SiteFactor]) -> int:
    dims = [(repr(factor), factor.dim) for factor in factors if factor.dim is not None]
    if not dims:
        raise ValueError("the length of w is not known: give GaussianFactor a dim, or a factor an H")
    if len({dim for _, dim in dims}) > 1:
        said = ", ".join(f"{name} has {dim}" for name, dim in dims)
        raise ValueError(f"factors differ in the dimension of w: {said}")
    return int(dims[0][1])


def _finite(value: ArrayLike, name: str, max_ndim: int) -> Array:
    raw = np.ma.filled(value, np.nan) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    if raw.dtype.kind not in "biufO":
        raise ValueError(f"{name} must hold real numbers, got {raw.dtype}")
    try:
        array = raw.astype(float, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric, got {value!r}") from error
    if array.ndim > max_ndim:
        raise ValueError(f"{name} must have at most {max_ndim} dimensions, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty")
    if not np.all(np.isfinite(array)):
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries of {array.size}")
    return np.asarray(summable(name, array))


def checked_matrix(value: Any, name: str, dim: int | None = None) -> Any:
    """A finite, non-empty matrix of `dim` columns: C-ordered array, CSR, or the LinearOperator as it came."""
    if isinstance(value, LinearOperator):
        if 0 in value.shape:
            raise ValueError(f"{name} must be a non-empty matrix, got shape {value.shape}")
        return visible(name, value)
    if sparse.issparse(value):
        matrix = sparse.csr_array(visible(name, value), dtype=float)
        _finite(matrix.data if matrix.nnz else [0.0], f"{name} data", max_ndim=1)
    else:
        matrix = np.ascontiguousarray(_finite(value, name, max_ndim=2))
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a non-empty matrix, got shape {matrix.shape}")
    if dim is not None and matrix.shape[1] != dim:
        raise ValueError(f"{name} must have {dim} columns, got shape {matrix.shape}")
    return matrix


def dense_operator(value: Any) -> Any:
    """A LinearOperator as the array of its rows; anything else as it is."""
    return np.asarray(value @ np.eye(value.shape[1]), float) if isinstance(value, LinearOperator) else value


def _positive_int(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)
