"""The engines by name: options only, passed to `latlin.infer`."""

from latlin.inference.expectation_propagation import ExpectationPropagation
from latlin.inference.gaussian_kl import GaussianKL
from latlin.inference.laplace import Laplace
from latlin.inference.map import MAP

__all__ = ["MAP", "ExpectationPropagation", "GaussianKL", "Laplace"]
