"""The engines by name: options only, passed to `latlin.infer`."""

from latlin.inference.affine.engine import AffineKL
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.mean_field.engine import MeanField
from latlin.inference.mode.laplace import Laplace
from latlin.inference.mode.map import MAP

__all__ = ["MAP", "AffineKL", "ExpectationPropagation", "GaussianKL", "Laplace", "LocalBound", "MeanField"]
