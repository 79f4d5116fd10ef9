"""Which engine to try after one that was not good enough."""

from __future__ import annotations

from latlin.densities.precision import PrecisionCovariance, SubspaceCovariance
from latlin.inference.approximation import Approximation

#: largest dimension for a full covariance, and for an affine-independent density
FULL, AFFINE = 2000, 60


def next_engine(posterior: Approximation) -> str:
    """A short name, with a word on options where they matter."""
    dim, engine = posterior.model.dim, posterior.engine
    if engine in ("map", "lvb", "laplace", "mean-field"):
        return "gkl" if dim <= FULL else "gkl with covariance='chevron'"
    if engine == "gkl" and not _is_full(posterior):
        return "gkl with covariance='full'" if dim <= FULL else "gkl with a richer covariance, such as 'chevron'"
    if engine in ("gkl", "ep") and dim <= AFFINE:
        return "ai-kl"
    if engine == "gkl":
        return "ep"
    if engine == "ep":
        return "gkl, whose bound is proven"
    return "ai-kl with another base, or more draws"


def _is_full(posterior: Approximation) -> bool:
    structure = getattr(posterior.density, "structure", None)
    return isinstance(structure, PrecisionCovariance | SubspaceCovariance)
