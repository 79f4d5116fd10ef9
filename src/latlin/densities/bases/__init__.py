"""Base densities of affine-independent densities, one family a file."""

from latlin.densities.bases.base import Base
from latlin.densities.bases.gaussian_mixture import GaussianMixture
from latlin.densities.bases.generalised_normal import GeneralisedNormal
from latlin.densities.bases.logistic import Logistic
from latlin.densities.bases.normal import Normal
from latlin.densities.bases.skew_normal import SkewNormal
from latlin.densities.bases.stacked import Stacked
from latlin.densities.bases.student_t import StudentT

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
