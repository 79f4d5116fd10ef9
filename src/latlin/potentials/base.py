"""What every potential answers: a block of scalar functions φ_n, one a site, evaluated as arrays.

A potential is asked for quantities, never for an engine's needs. `log_density` is the one thing a family must
write; the others have quadrature defaults and a family overrides one only where it knows a closed form or a faster way.
Throughout, ψ = log φ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class ExpectedLog(NamedTuple):
    """⟨ψ(x)⟩ under N(x | mean, var) and its derivatives, each an array over sites."""

    value: Array
    d_mean: Array
    d_var: Array


class TiltedMoments(NamedTuple):
    """log Z, mean and variance of N(x | mean, var) φ(x)^power / Z."""

    log_z: Array
    mean: Array
    variance: Array


class Derivatives(NamedTuple):
    """ψ′(x), ψ″(x), ψ‴(x)."""

    first: Array
    second: Array
    third: Array


class QuadraticBound(NamedTuple):
    """Coefficients of ψ(x) ≥ −½ a x² + b x + c, tight at x = ±ξ (up to the site's own shift)."""

    a: Array
    b: Array
    c: Array


class Potential(ABC):
    """A block of sites of one family.

    Parameters of a family are scalars or arrays of one common length, the number of sites; scalars serve any number.
    Instances are immutable.
    """

    #: names of the attributes that hold one number a site (or one for all)
    arrays: ClassVar[tuple[str, ...]] = ()
    #: ψ is concave
    log_concave: bool = False
    #: ψ(x) − b x is convex and decreasing in x² for some b, so that quadratic lower bounds exist
    super_gaussian: bool = False
    #: ψ has two continuous derivatives
    smooth: bool = True

    @property
    def size(self) -> int | None:
        """Number of sites, or None when the parameters serve any number."""
        sizes = [np.size(getattr(self, name)) for name in self.arrays if np.ndim(getattr(self, name)) > 0]
        return sizes[0] if sizes else None

    @abstractmethod
    def log_density(self, x: ArrayLike) -> Array:
        """ψ(x), constants included, for x of shape (..., sites)."""

    @abstractmethod
    def select(self, index: ArrayLike | slice) -> Self:
        """The same family restricted to some of its sites (repeats allowed)."""
