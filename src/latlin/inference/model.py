"""The problem object: Gaussian factors and blocks of scalar sites on linear projections of w.

    p(w) = 1/Z ∏_m N(H_m w | μ_m, Σ_m) ∏_n φ_n(h_nᵀw + o_n)^{weight_n}

Challis (2013), eq. 2.3.1. Everything is checked here, once; nothing downstream checks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.numerics.arrays import Array, check_countable
from latlin.numerics.intrinsic import generalised_log_det, independent_rows
from latlin.numerics.linalg import cholesky
from latlin.numerics.options import (
    Sealed,
    check_matrix,
    check_precision,
    check_projection,
    common_dim,
    dense_operator,
    finite_array,
    positive_array,
    positive_int,
)
from latlin.potentials.base import Potential

#: why a question about a covariance has no answer
BY_PRECISION = (
    "this needs the covariance of a GaussianFactor that is given by a precision matrix; "
    "use engine 'gkl', 'laplace', 'ep', 'lvb' or 'map' with full covariances"
)


class GaussianFactor(Sealed):
    """N(Hw | mean, cov), or the same by its precision.

    Parameters
    ----------
    mean : float or array of shape (m,)
    cov : float, array of shape (m,) or array of shape (m, m)
        Variance, variances or covariance matrix.
    H : array or sparse matrix of shape (m, dim), or slice, optional
        Projection, or the coordinates of a part of w (a slice needs `dim`); without it the factor is on w itself.
    dim : int, optional
        Length of w; needed only when nothing else in the model says it.
    precision : float, array of shape (m,), or array or sparse matrix of shape (m, m), optional
        In place of `cov`. A matrix is kept sparse, and every engine that fits a full covariance then works at the cost
        of a sparse Cholesky factorisation.
    rank : int, optional
        Of a precision that is only semi-definite (intrinsic, improper): the factor is
        (2π)^−rank/2 |Q|₊^½ exp(−½(Hw − mean)ᵀQ(Hw − mean)), |Q|₊ the product of the positive eigenvalues.
    log_det : float, optional
        log |Q|₊ of a precision matrix, where it is known; else it is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> steps = sparse.diags_array([-np.ones(4), np.ones(4)], offsets=[0, 1], shape=(4, 5))
    >>> GaussianFactor(precision=steps.T @ steps, rank=4)
    GaussianFactor(sparse precision of rank 4 on w)
    """

    def __init__(
        self,
        mean: ArrayLike = 0.0,
        cov: ArrayLike | None = None,
        H: Any = None,
        dim: int | None = None,
        *,
        precision: Any = None,
        rank: int | None = None,
        log_det: float | None = None,
    ) -> None:
        if cov is not None and precision is not None:
            raise ValueError("GaussianFactor takes cov or precision, got both")
        self.mean = finite_array(mean, "GaussianFactor mean", max_ndim=1)
        self.precision: sparse.csr_array | None = None
        self._cov: Array | None = None
        if precision is None:
            self._cov = finite_array(1.0 if cov is None else cov, "GaussianFactor cov", max_ndim=2)
        elif sparse.issparse(precision) or np.ndim(precision) == 2 or rank is not None:
            self.precision = check_precision(precision, "GaussianFactor precision")
        else:
            self._cov = 1.0 / positive_array(precision, "GaussianFactor precision")
        self.H: Any = None if H is None else check_projection(H, dim)
        self.size = self._common_size(dim, "cov" if precision is None else "precision")
        self.dim = self.size if self.H is None else self.H.shape[1]
        if dim is not None and self.dim != dim:
            raise ValueError(f"GaussianFactor dim is {dim}, but its other arguments have dimension {self.dim}")
        self.factor = None if self._cov is None else self._check_covariance(self._cov)
        self.rank, self.log_det = self._check_rank(rank, log_det)
        self._seal()

    @property
    def cov(self) -> Array:
        """Variance, variances or covariance matrix; a factor given by a precision matrix has none."""
        if self._cov is None:
            raise ValueError(BY_PRECISION)
        return self._cov

    @property
    def by_precision(self) -> bool:
        """Whether the factor is given by a precision matrix, or by something that stands for one."""
        return self._cov is None

    def times_precision(self, v: Array) -> Array:
        """Qv of a factor that is given by a precision matrix."""
        return sparse.csr_array(self.precision) @ v

    def _common_size(self, dim: int | None, given: str) -> int | None:
        sizes = {"mean": self.mean.shape}
        if self.precision is not None:
            sizes["precision"] = self.precision.shape
        elif self._cov is not None:
            sizes[given] = self._cov.shape
        known = {name: shape[0] for name, shape in sizes.items() if shape}
        if self.H is not None:
            known["H"] = self.H.shape[0]
        elif dim is not None:
            known["dim"] = positive_int(dim, "GaussianFactor dim")
        if len(set(known.values())) > 1:
            raise ValueError(f"GaussianFactor arguments differ in length: {known}")
        return next(iter(known.values()), None)

    def _check_covariance(self, cov: Array) -> Array | None:
        if cov.ndim < 2:
            if np.any(cov <= 0.0):
                raise ValueError(f"GaussianFactor cov must be positive, got {cov.min():g}")
            return None
        if cov.shape[0] != cov.shape[1]:
            raise ValueError(f"GaussianFactor cov must be square, got shape {cov.shape}")
        # most are symmetric to the last bit, which is seen without making other matrices
        asymmetry = 0.0 if np.array_equal(cov, cov.T) else float(np.abs(cov - cov.T).max())
        if asymmetry and asymmetry > 1e-8 * float(np.abs(cov).max()):
            raise ValueError(f"GaussianFactor cov must be symmetric, got entries that differ by {asymmetry:g}")
        return cholesky(cov, name="GaussianFactor cov").factor

    def _check_rank(self, rank: int | None, log_det: float | None) -> tuple[int | None, float | None]:
        """The rank of a precision matrix and its generalised log determinant; None, None without such a matrix."""
        if self.precision is None:
            if rank is not None or log_det is not None:
                raise ValueError("GaussianFactor rank and log_det are for a precision, got them without one")
            return None, None
        size = self.precision.shape[0]
        rank = size if rank is None else positive_int(rank, "GaussianFactor rank")
        if rank > size:
            raise ValueError(f"GaussianFactor rank must be at most {size}, the size of precision, got {rank}")
        if log_det is None:
            return rank, generalised_log_det(self.precision, rank, "GaussianFactor precision")
        return rank, float(finite_array(log_det, "GaussianFactor log_det", max_ndim=0))

    def with_precision(self, precision: sparse.csc_array, log_det: float) -> GaussianFactor:
        """The same factor with other values on the pattern of its symmetric precision, which was checked."""
        own, made = self.precision, object.__new__(GaussianFactor)
        assert own is not None  # a factor with a precision matrix
        same = np.array_equal(own.indptr, precision.indptr) and np.array_equal(own.indices, precision.indices)
        if not same or not (np.isfinite(log_det) and np.isfinite(precision.data.sum())):
            return GaussianFactor(self.mean, H=self.H, precision=precision, rank=self.rank, log_det=log_det)
        moved = sparse.csr_array((precision.data, own.indices, own.indptr), shape=own.shape)
        vars(made).update({**vars(self), "precision": moved, "log_det": log_det})
        return made

    def __repr__(self) -> str:
        on = "w" if self.H is None else f"{self.H.shape[0]} projections of w"
        if self.precision is not None:
            return f"GaussianFactor(sparse precision of rank {self.rank} on {on})"
        kind = ("scalar", "diagonal", "full")[self.cov.ndim]
        return f"GaussianFactor({kind} covariance on {on})"


class Constraint(Sealed):
    """A w = e, exactly.

    Parameters
    ----------
    A : array or sparse matrix of shape (k, dim), or array of shape (dim,)
    e : float or array of shape (k,)

    Examples
    --------
    >>> Constraint([1.0, 1.0, 1.0])
    Constraint(1 row on 3 coordinates)
    """

    def __init__(self, A: Any, e: ArrayLike = 0.0) -> None:
        rows = A if sparse.issparse(A) or isinstance(A, LinearOperator) else np.atleast_2d(A)
        self.A = sparse.csr_array(check_matrix(dense_operator(rows), "Constraint A"))
        self.e = np.asarray(finite_array(e, "Constraint e", max_ndim=1))
        if self.e.ndim and len(self.e) != self.A.shape[0]:
            raise ValueError(f"Constraint e must have one number per row of A, {self.A.shape[0]}, got {len(self.e)}")
        self.dim = self.A.shape[1]
        self._seal()

    def __repr__(self) -> str:
        rows = self.A.shape[0]
        return f"Constraint({rows} row{'s' if rows > 1 else ''} on {self.dim} coordinates)"


class SiteFactor(Sealed):
    """∏_n φ_n(h_nᵀw + offset_n)^{weight_n}, or expectations of these logarithms.

    Parameters
    ----------
    H : array, sparse matrix or LinearOperator of shape (n, dim), or None
        Rows are the projections h_n; None puts the sites on the coordinates of w.
    potential : Potential
        One site per row, see `latlin.potentials`.
    weight : float or array of shape (n,), optional
        Non-negative exponents; a weight of 2 counts a site twice.
    offset : float or array of shape (n,), optional
    extra_variance : float or array of shape (n,), optional
        Of what a projection leaves out: the sites are exp⟨log φ_n(h_nᵀw + offset_n + ε)⟩ over ε ~ N(0, v_n), and
        the evidence is at most that of the model in which every ε_n is a coordinate of w (Jensen's inequality). For
        engines 'gkl', 'exact', 'laplace' and 'map'.
    """

    def __init__(
        self,
        H: Any,
        potential: Potential,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        extra_variance: ArrayLike | None = None,
    ) -> None:
        if not isinstance(potential, Potential):
            raise ValueError(f"SiteFactor potential must be a latlin potential, got {type(potential).__name__}")
        self.potential = potential
        self.H: Any = None if H is None else check_matrix(H, "SiteFactor H")
        self.weight = None if weight is None else finite_array(weight, "SiteFactor weight", max_ndim=1)
        self.offset = None if offset is None else finite_array(offset, "SiteFactor offset", max_ndim=1)
        if self.weight is not None and np.any(self.weight < 0.0):
            raise ValueError(f"SiteFactor weight must not be negative, got {self.weight.min():g}")
        if self.weight is not None:
            check_countable("SiteFactor weight", self.weight)
        self.extra_variance = (
            None if extra_variance is None else finite_array(extra_variance, "SiteFactor extra_variance", max_ndim=1)
        )
        if self.extra_variance is not None and np.any(self.extra_variance < 0.0):
            raise ValueError(f"SiteFactor extra_variance must not be negative, got {self.extra_variance.min():g}")
        self.size = self._common_size()
        self.dim = self.size if self.H is None else self.H.shape[1]
        #: what a form has found of these rows; factors that differ in their potential alone share it
        self.kept: dict[str, Any] = {}
        self._seal()

    def with_potential(self, potential: Potential) -> SiteFactor:
        """The same rows, weights and offsets, which were checked, with another potential of as many sites."""
        made = object.__new__(SiteFactor)
        vars(made).update({**vars(self), "potential": potential})
        made._common_size()
        return made

    def _common_size(self) -> int | None:
        known = {"H": None if self.H is None else self.H.shape[0], "potential": self.potential.size}
        known |= {
            name: len(value)
            for name in ("weight", "offset", "extra_variance")
            if (value := getattr(self, name)) is not None and value.ndim == 1
        }
        sizes = {name: size for name, size in known.items() if size is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"SiteFactor arguments differ in their number of sites: {sizes}")
        return next(iter(sizes.values()), None)

    def __repr__(self) -> str:
        on = "the coordinates of w" if self.H is None else f"{self.H.shape[0]} projections of w"
        return f"SiteFactor({type(self.potential).__name__} on {on})"


class Model(Protocol):
    """What engines may ask of a model wherever its observations are; `LatentLinearModel` and `BlockModel` are such."""

    @property
    def dim(self) -> int:
        """Length of w."""
        ...

    @property
    def gaussians(self) -> tuple[GaussianFactor, ...]: ...

    @property
    def potentials(self) -> tuple[Potential, ...]:
        """One potential per factor of sites."""
        ...

    @property
    def log_concave(self) -> bool: ...

    @property
    def smooth(self) -> bool: ...

    @property
    def gaussian(self) -> bool:
        """Every site is Gaussian, so that the posterior is, too."""
        ...


class SiteTraits:
    """What holds for all sites of a model where it holds for each of its potentials."""

    potentials: Any

    @property
    def log_concave(self) -> bool:
        """Every site is log-concave."""
        return all(potential.log_concave for potential in self.potentials)

    @property
    def smooth(self) -> bool:
        """No site has a kink."""
        return all(potential.smooth for potential in self.potentials)

    @property
    def gaussian(self) -> bool:
        """Every site is Gaussian, so that the posterior is, too."""
        return all(potential.gaussian for potential in self.potentials)


@dataclass(frozen=True, init=False, repr=False)
class LatentLinearModel(SiteTraits):
    """A product of Gaussian factors and blocks of sites; see the module.

    Parameters
    ----------
    factors : list of GaussianFactor and SiteFactor
    constraints : list of Constraint
        A w = e. The model is then a density on that part of space, and its evidence the integral over it in the units
        of w, whatever the scale of the rows of A.
    normalise_prior : bool
        The Gaussian factors together are one prior that integrates to one (over the constraints), whatever they
        integrate to one by one.

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
    constraints: tuple[Constraint, ...] = ()
    normalise_prior: bool = False

    def __init__(
        self,
        factors: Iterable[GaussianFactor | SiteFactor],
        constraints: Iterable[Constraint] = (),
        normalise_prior: bool = False,
    ) -> None:
        if not isinstance(factors, Iterable):
            raise ValueError(f"factors must be a list of factors, got {type(factors).__name__}")
        listed = list(factors)
        for factor in listed:
            if not isinstance(factor, GaussianFactor | SiteFactor):
                raise ValueError(f"factors must be GaussianFactor or SiteFactor, got {type(factor).__name__}")
        if not listed:
            raise ValueError("factors must name at least one factor, got none")
        held = _checked_constraints(constraints)
        object.__setattr__(self, "gaussians", tuple(f for f in listed if isinstance(f, GaussianFactor)))
        object.__setattr__(self, "sites", tuple(f for f in listed if isinstance(f, SiteFactor)))
        object.__setattr__(self, "dim", common_dim([*listed, *held]))
        object.__setattr__(self, "constraints", held)
        object.__setattr__(self, "normalise_prior", bool(normalise_prior))
        self.constraint_rows()

    def constraint_rows(self) -> tuple[Array, Array] | None:
        """A and e of all constraints together, independent rows only, or None without constraints."""
        if not self.constraints:
            return None
        known: tuple[Array, Array] | None = vars(self).get("_independent_rows")
        if known is not None:
            return known
        e = [np.broadcast_to(c.e, c.A.shape[0]) for c in self.constraints]
        rows = sparse.csr_array(sparse.vstack([c.A for c in self.constraints]))
        found = independent_rows(rows, np.concatenate(e))
        # every fit asks
        vars(self)["_independent_rows"] = found
        return found

    def among(self, factors: Iterable[GaussianFactor | SiteFactor]) -> LatentLinearModel:
        """Some of the factors, on a w of the same length and under the same constraints."""
        listed, part = list(factors), object.__new__(LatentLinearModel)
        object.__setattr__(part, "gaussians", tuple(f for f in listed if isinstance(f, GaussianFactor)))
        object.__setattr__(part, "sites", tuple(f for f in listed if isinstance(f, SiteFactor)))
        object.__setattr__(part, "dim", self.dim)
        object.__setattr__(part, "constraints", self.constraints)
        object.__setattr__(part, "normalise_prior", self.normalise_prior)
        if "_independent_rows" in vars(self):
            vars(part)["_independent_rows"] = vars(self)["_independent_rows"]
        return part

    @property
    def potentials(self) -> tuple[Potential, ...]:
        """One potential per factor of sites."""
        return tuple(factor.potential for factor in self.sites)

    def site_count(self, factor: SiteFactor) -> int:
        """Number of sites of a factor; one on the coordinates has `dim` of them."""
        return self.dim if factor.size is None else factor.size

    def __repr__(self) -> str:
        parts = (*self.gaussians, *self.sites, *self.constraints)
        return f"LatentLinearModel(dim={self.dim}: {', '.join(map(repr, parts))})"


#: who can use rows in blocks
IN_BLOCKS = (
    "the observations are in blocks of rows, which engines 'gkl' (any covariance but \"subspace\"), 'exact', 'laplace' "
    "and 'map' can use; for anything else take the rows into memory"
)


def require_in_memory(model: Model, engine: str = "") -> LatentLinearModel:
    """The model, whose rows are in memory; a sentence for one whose rows are in blocks."""
    if isinstance(model, LatentLinearModel):
        return model
    raise ValueError(f"engine {engine!r} cannot be used: {IN_BLOCKS}" if engine else IN_BLOCKS)


def _checked_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    if isinstance(constraints, Constraint):
        raise ValueError("constraints must be a list of Constraint, got one alone")
    if not isinstance(constraints, Iterable):
        raise ValueError(f"constraints must be a list of Constraint, got {constraints!r:.80}")
    held = tuple(constraints)
    for constraint in held:
        if not isinstance(constraint, Constraint):
            raise ValueError(f"constraints must be a list of Constraint, got a {type(constraint).__name__} in it")
    return held
