"""The engines by name: options only, passed to `latlin.infer`."""

from latlin.inference.affine.engine import AffineKL
from latlin.inference.elliptical import EllipticalKL
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.laplace import MAP, Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.mean_field import MeanField

__all__ = [
    "MAP",
    "AffineKL",
    "EllipticalKL",
    "Exact",
    "ExpectationPropagation",
    "GaussianKL",
    "Laplace",
    "LocalBound",
    "MeanField",
]
