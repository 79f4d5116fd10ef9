"""Floor 3: sequential experimental design for sparse linear models."""

from latlin.design.sequential import SequentialDesign, finite_differences, wavelet_transform

__all__ = ["SequentialDesign", "finite_differences", "wavelet_transform"]
