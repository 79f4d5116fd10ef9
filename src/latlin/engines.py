"""The engines by name: options only, passed to `latlin.infer`."""

from latlin.inference.affine_kl import AffineKL
from latlin.inference.expectation_propagation import ExpectationPropagation
from latlin.inference.gaussian_kl import GaussianKL
from latlin.inference.laplace import Laplace
from latlin.inference.local_bound import LocalBound
from latlin.inference.map import MAP
from latlin.inference.mean_field import MeanField

__all__ = ["MAP", "AffineKL", "ExpectationPropagation", "GaussianKL", "Laplace", "LocalBound", "MeanField"]
