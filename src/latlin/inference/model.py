"""The problem object: Gaussian factors and blocks of scalar sites on linear projections of w.

    p(w) = 1/Z ∏_m N(H_m w | μ_m, Σ_m) ∏_n φ_n(h_nᵀw + o_n)^{weight_n}

Challis (2013), eq. 2.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from latlin.inference.factors import Constraint, GaussianFactor, SiteFactor
from latlin.numerics.arrays import Array
from latlin.numerics.intrinsic import independent_rows
from latlin.potentials.base import Potential

__all__ = [
    "IN_BLOCKS",
    "Constraint",
    "GaussianFactor",
    "LatentLinearModel",
    "Model",
    "SiteFactor",
    "SiteTraits",
    "in_memory",
]


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
        object.__setattr__(self, "dim", _common_dim([*listed, *held]))
        object.__setattr__(self, "constraints", held)
        object.__setattr__(self, "normalise_prior", bool(normalise_prior))
        self.constraint_rows()

    def constraint_rows(self) -> tuple[Array, Array] | None:
        """A and e of all constraints together, independent rows only, or None without constraints."""
        if not self.constraints:
            return None
        e = [np.broadcast_to(c.e, c.A.shape[0]) for c in self.constraints]
        rows = sparse.csr_array(sparse.vstack([c.A for c in self.constraints]))
        return independent_rows(rows, np.concatenate(e))

    def among(self, factors: Iterable[GaussianFactor | SiteFactor]) -> LatentLinearModel:
        """Some of the factors, on a w of the same length and under the same constraints."""
        listed, part = list(factors), object.__new__(LatentLinearModel)
        object.__setattr__(part, "gaussians", tuple(f for f in listed if isinstance(f, GaussianFactor)))
        object.__setattr__(part, "sites", tuple(f for f in listed if isinstance(f, SiteFactor)))
        object.__setattr__(part, "dim", self.dim)
        object.__setattr__(part, "constraints", self.constraints)
        object.__setattr__(part, "normalise_prior", self.normalise_prior)
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


def in_memory(model: Model, engine: str = "") -> LatentLinearModel:
    """The model, whose rows are in memory; a sentence for one whose rows are in blocks."""
    if isinstance(model, LatentLinearModel):
        return model
    raise ValueError(f"engine {engine!r} cannot be used: {IN_BLOCKS}" if engine else IN_BLOCKS)


def _checked_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    if isinstance(constraints, Constraint):
        raise ValueError("constraints must be a list of Constraint, got one alone")
    held = tuple(constraints)
    for constraint in held:
        if not isinstance(constraint, Constraint):
            raise ValueError(f"constraints must be a list of Constraint, got a {type(constraint).__name__} in it")
    return held


def _common_dim(factors: list[GaussianFactor | SiteFactor | Constraint]) -> int:
    dims = [(repr(factor), factor.dim) for factor in factors if factor.dim is not None]
    if not dims:
        raise ValueError("the length of w is not known: give GaussianFactor a dim, or a factor an H")
    if len({dim for _, dim in dims}) > 1:
        said = ", ".join(f"{name} has {dim}" for name, dim in dims)
        raise ValueError(f"factors differ in the dimension of w: {said}")
    return int(dims[0][1])
