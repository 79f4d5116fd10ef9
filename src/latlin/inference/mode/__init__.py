"""The mode of the posterior and the Gaussian around it: maximum a posteriori and Laplace."""

from latlin.inference.mode.laplace import Laplace
from latlin.inference.mode.map import MAP

__all__ = ["MAP", "Laplace"]
