"""Base densities of affine-independent densities, one family a file."""

from latlin.densities.bases.asymmetric import GaussianMixture, SkewNormal
from latlin.densities.bases.base import Base, Stacked
from latlin.densities.bases.symmetric import GeneralisedNormal, Logistic, Normal, StudentT

#: name → family
FAMILIES: dict[str, type[Base]] = {
    family.name: family for family in (Normal, SkewNormal, GeneralisedNormal, StudentT, Logistic, GaussianMixture)
}

__all__ = [
    "FAMILIES",
    "Base",
    "GaussianMixture",
    "GeneralisedNormal",
    "Logistic",
    "Normal",
    "SkewNormal",
    "Stacked",
    "StudentT",
]
