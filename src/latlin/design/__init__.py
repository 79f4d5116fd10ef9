"""Floor 3: sequential experimental design for sparse linear models."""

from latlin.design.filters import finite_differences, wavelet_transform
from latlin.design.sequential import SequentialDesign

__all__ = ["SequentialDesign", "finite_differences", "wavelet_transform"]
