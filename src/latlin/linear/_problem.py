"""One response on one design: from features to rows of the model, the prior, and the model for given hyperparameters.

The unknowns are w = (coefficients, intercept), and a row of the model is (x − centre, 1): standardising is a matter of
the prior alone, whose standard deviation for coefficient j is prior_scale / sd_j, and of where the intercept is
measured. Sparse rows are scaled in this way but not centred, which would make them dense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from latlin.inference.evidence.terms import EvidenceGradient
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor
from latlin.numerics.arrays import LARGEST, Array, check_countable, check_summable, check_visible, max_abs
from latlin.numerics.linalg import longest_product
from latlin.numerics.options import float_array
from latlin.numerics.stored import storable
from latlin.potentials.checks import naming_rows, refuse
from latlin.potentials.families import Described, Family
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.ranges import Between, Range

#: rows that stay in the cache
PIECE = 512
#: spread, as a share of the mean, of a constant feature
FLAT = 1e-10
#: the largest scale whose square is among the numbers that a model takes
LARGEST_SCALE = float(np.sqrt(LARGEST))


@storable
@dataclass(frozen=True)
class Design:
    """How features become rows.

    Parameters
    ----------
    centre : ndarray of shape (n_features,)
        Subtracted from the features; zeros where nothing is.
    spread : ndarray of shape (n_features,)
        Standard deviations that the prior is measured in; ones without standardising.
    intercept : bool
        The rows end in a 1.
    """

    centre: Array
    spread: Array
    intercept: bool

    @property
    def n_features(self) -> int:
        return len(self.centre)

    @property
    def dim(self) -> int:
        """Number of unknowns."""
        return self.n_features + self.intercept

    def rows(self, X: Any) -> Any:
        """The rows of the model; sparse where `X` is and nothing is subtracted."""
        if sparse.issparse(X) and not self.centre.any():
            plain = sparse.csr_array(X, dtype=float)
            ones = sparse.csr_array(np.ones((X.shape[0], 1)))
            return sparse.csr_array(sparse.hstack([plain, ones], format="csr")) if self.intercept else plain
        dense, rows = X.toarray() if sparse.issparse(X) else X, np.empty((X.shape[0], self.dim))
        rows[:, self.n_features :] = 1.0
        if dense.dtype == np.float64:
            np.subtract(dense, self.centre, out=rows[:, : self.n_features])
            return rows
        # widened first: NumPy subtracts numbers of two kinds through small buffers, in twice the time
        rows[:, : self.n_features] = dense
        rows -= np.append(self.centre, np.zeros(int(self.intercept)))
        return rows

    def user_rows(self) -> Any:
        """The matrix that turns w into the coefficients and the intercept at x = 0, sparse."""
        last = sparse.csr_array(np.append(-self.centre, 1.0)[None, :])
        whole = sparse.eye_array(self.n_features, self.dim, format="csr")
        return sparse.csr_array(sparse.vstack([whole, last], format="csr")) if self.intercept else whole

    def coefficients(self, w: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts at x = 0 of one w or of each row of a matrix."""
        coef = w[..., : self.n_features]
        shift = -np.asarray(coef @ self.centre)
        return coef, shift + w[..., -1] if self.intercept else shift


def design_of(X: Any, weight: Array | None, *, standardise: bool, intercept: bool, absorbed: bool) -> Design:
    """The design for training rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
    weight : ndarray of shape (n,) or None
    standardise : bool
        Measure the prior in standard deviations of the features, and dense features from their means.
    intercept : bool
        The model has an intercept among its unknowns.
    absorbed : bool
        A shift of the features can be made up for by the intercept or by cut points.
    """
    mean, variance = _moments(X, weight) if standardise else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
    centred = absorbed and not sparse.issparse(X)
    return design_of_moments(mean, variance, standardise=standardise, intercept=intercept, centred=centred)


def design_of_moments(mean: Array, variance: Array, *, standardise: bool, intercept: bool, centred: bool) -> Design:
    """The design for features of these moments."""
    if not standardise:
        return Design(np.zeros(len(mean)), np.ones(len(mean)), intercept)
    # a constant feature has a spread of rounding only
    flat = variance <= (FLAT * mean) ** 2
    spread = np.where(flat, 1.0, np.sqrt(np.where(flat, 1.0, variance)))
    return Design(mean if centred else np.zeros(len(mean)), spread, intercept)


def _moments(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Weighted means and variances of the columns."""
    if sparse.issparse(X):
        mean, variance = mean_variance_axis(sparse.csr_matrix(X, dtype=float), axis=0, weights=weight)
        return np.asarray(mean, float), np.asarray(variance, float)
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
    # plain loops: NumPy's own BLAS threads would spin beside those of SciPy, which the engines use
    mean, variance = np.einsum("n,nd->d", share, X, dtype=float), np.zeros(X.shape[1])
    for i in range(0, X.shape[0], PIECE):
        part = X[i : i + PIECE] - mean
        variance += np.einsum("n,nd,nd->d", share[i : i + PIECE], part, part)
    return mean, variance


# --- Priors of the coefficients: independent Gaussians here, sites with kinks or heavy tails in `sparse.py`.
#
# All are measured in the spreads of the design: the scale of coefficient j is prior_scale / spread_j. The intercept
# has its own location and (wide) scale, which are never learnt.

#: hyperparameters by name: "prior_scale" and those of the likelihood and of the prior
Values = Mapping[str, Any]
#: largest mean of all coefficients that is sought, in their unit
FARTHEST = 10.0


class CoefficientPrior(Protocol):
    """A prior for the unknowns of a design."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters besides "prior_scale"."""
        ...

    def first(self) -> dict[str, Any]:
        """Parameters to start a search from."""
        ...

    def ranges(self, unit: float) -> dict[str, Range]:
        """Where the parameters lie; `unit` is that of the coefficients."""
        ...

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> GaussianFactor | SiteFactor:
        """The factor of the model."""
        ...

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        """∂ log Z / ∂ parameter; one number per feature for "prior_scale"."""
        ...


def locate_and_scale(design: Design, intercept: tuple[float, float], values: Values) -> tuple[Array, Array]:
    count = design.n_features
    loc, scale = (np.broadcast_to(values.get(n, 0.0), count) / design.spread for n in ("prior_mean", "prior_scale"))
    if scale.max() > LARGEST_SCALE:
        raise ValueError(
            f"prior_scale must leave coefficients below {LARGEST_SCALE:g} in the units of X, got {scale.max():g}: "
            "change the units"
        )
    return (np.append(loc, intercept[0]), np.append(scale, intercept[1])) if design.intercept else (loc, scale)


@dataclass(frozen=True)
class GaussianPrior:
    """w_j ~ N(0, (prior_scale / spread_j)²)."""

    parameters: tuple[str, ...] = ()

    def first(self) -> dict[str, Any]:
        return {}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> GaussianFactor:
        mean, scale = locate_and_scale(design, intercept, values)
        return GaussianFactor(mean, scale**2)

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        # v_j = s_j²/spread_j², ∂v_j/∂s_j = 2 s_j/spread_j²
        d_variance = slopes.gaussians[0].d_cov[: design.n_features]
        return {"prior_scale": d_variance * 2.0 * values["prior_scale"] / design.spread**2}


@dataclass(frozen=True)
class LocatedPrior:
    """w_j ~ N(prior_mean / spread_j, (prior_scale / spread_j)²), with one mean for all that can be learnt."""

    parameters: tuple[str, ...] = ("prior_mean",)

    def first(self) -> dict[str, Any]:
        return {"prior_mean": 0.0}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {"prior_mean": Between(-FARTHEST * unit, FARTHEST * unit, 0.0)}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> GaussianFactor:
        return GaussianPrior().factor(design, intercept, values)

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        d_mean = slopes.gaussians[0].d_mean[: design.n_features]
        return {**GaussianPrior().gradient(design, values, slopes), "prior_mean": d_mean / design.spread}


# --- What was observed of the rows in memory.


class Targets(NamedTuple):
    """What was observed: y in the family's own coding, (n,) or (n, columns), exponents and offsets of the sites."""

    y: Array
    weight: Array | None
    offset: Array | None

    @property
    def response(self) -> Array:
        """The observation itself, without what stands beside it."""
        return self.y if self.y.ndim == 1 else self.y[:, 0]

    def average(self, values: Array) -> float:
        """The weighted mean."""
        return float(np.average(values, weights=self.weight))

    def residual(self) -> Array:
        """y less its offset."""
        return self.response if self.offset is None else self.response - self.offset

    def mean(self) -> float:
        return self.average(self.response)

    def residual_moments(self) -> tuple[float, float]:
        residual = self.residual()
        mean = self.average(residual)
        return mean, float(np.sqrt(self.average((residual - mean) ** 2)))

    def log_exposure(self) -> float | None:
        if self.offset is None:
            return None
        # the exposures themselves may overflow
        top = self.offset.max()
        return float(top + np.log(self.average(np.exp(self.offset - top))))

    def class_weights(self, count: int) -> Array:
        weight = np.ones_like(self.y) if self.weight is None else self.weight
        return np.bincount(self.y.astype(int), weights=weight, minlength=count).astype(float)


@dataclass(frozen=True)
class HeldRows:
    """Rows in memory.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, design.dim)
    targets : Targets
    """

    rows: Any
    targets: Targets

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0])

    @property
    def weight(self) -> float:
        return float(self.n_rows if self.targets.weight is None else self.targets.weight.sum())

    def feature_size(self, n_features: int) -> float:
        """The root mean square of the features."""
        features = self.rows[:, :n_features]
        squares = features.multiply(features) if sparse.issparse(features) else np.square(features)
        size = np.average(np.asarray(squares.mean(axis=1)).ravel(), weights=self.targets.weight)
        return float(np.sqrt(size)) or 1.0

    def model(
        self, prior: GaussianFactor | SiteFactor, design: Design, family: Family, values: Values
    ) -> LatentLinearModel:
        potential = family.potential(self.targets.y, values)
        return LatentLinearModel([prior, SiteFactor(self.rows, potential, self.targets.weight, self.targets.offset)])


class ObservedRows(Protocol):
    """Rows and what was observed of them: in memory (`HeldRows`), or in blocks (`BlockRows` in `_blocks.py`)."""

    @property
    def targets(self) -> Described: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def weight(self) -> float:
        """The sum of the weights."""
        ...

    def feature_size(self, n_features: int) -> float:
        """The root mean square of the features."""
        ...

    def model(self, prior: GaussianFactor | SiteFactor, design: Design, family: Family, values: Values) -> Model: ...


@dataclass(frozen=True)
class LinearProblem:
    """Observations, likelihood and prior; hyperparameters are given to `model`.

    Parameters
    ----------
    observed : ObservedRows
    design : Design
    family : Family
    prior : Prior
    intercept : tuple of float
        Mean and standard deviation of the prior of the intercept.
    """

    observed: ObservedRows
    design: Design
    family: Family
    prior: CoefficientPrior
    intercept: tuple[float, float]

    @property
    def targets(self) -> Described:
        return self.observed.targets

    @property
    def n_entries(self) -> int:
        """Rows times unknowns."""
        return self.observed.n_rows * self.design.dim

    def longest_product(self, n_classes: int = 1) -> float:
        """Multiplications of the longest product of a fit, of several classes together."""
        if not isinstance(self.observed, HeldRows):
            return math.inf
        return longest_product(self.observed.n_rows, n_classes * self.design.dim)

    @property
    def has_gaussian_noise(self) -> bool:
        """Whether the noise is Gaussian about y, or about its logarithm (of rows in memory)."""
        template = self.family.template
        return type(template) is Gaussian or (template.gaussian and isinstance(self.observed, HeldRows))

    def model(self, values: Values) -> Model:
        """The prior first, then the observations."""
        prior = self.prior.factor(self.design, self.intercept, values)
        return self.observed.model(prior, self.design, self.family, values)

    @cached_property
    def feature_size(self) -> float:
        """The root mean square of features that are not standardised; 1 where they are."""
        if np.any(self.design.spread != 1.0):
            return 1.0
        size = self.observed.feature_size(self.design.n_features)
        # what centring leaves of constant features is rounding
        return size if size > FLAT * max_abs(self.design.centre) else 1.0

    @cached_property
    def unit(self) -> float:
        """The natural size of a coefficient of a standardised feature."""
        return self.family.unit(self.targets)


# --- What belongs to the rows: weights, offsets, and the numbers that stand for labels.


def check_weights(value: Any, count: int) -> Array | None:
    """Non-negative exponents, one per row, not all zero; None stays None."""
    if value is None:
        return None
    array = float_array("sample_weight", check_visible("sample_weight", value))
    if array.ndim == 0:
        array = np.full(count, float(array))
    if array.shape != (count,):
        raise ValueError(f"sample_weight must have shape ({count},), one number per row, got shape {array.shape}")
    with naming_rows():
        refuse("sample_weight", array, ~(np.isfinite(array) & (array >= 0.0)), "finite numbers of at least zero")
    if not np.any(array > 0.0):
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    return check_countable("sample_weight", array)


def check_offsets(value: Any, count: int, width: int = 1) -> Array | None:
    """One number per row, or one per row and class; None stays None."""
    if value is None:
        return None
    array = float_array("offset", value)
    if array.ndim == 0:
        array = np.full(count, float(array))
    allowed = {(count,)} | ({(count, width)} if width > 1 else set())
    if array.shape not in allowed:
        raise ValueError(f"offset must have shape {' or '.join(map(str, sorted(allowed)))}, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"offset must be finite, got {array[~np.isfinite(array)][0]:g}")
    return np.asarray(check_summable("offset", array))


def offset_of(offset: Array | None, index: int) -> Array | None:
    """The offsets of one class."""
    return offset[:, index] if offset is not None and offset.ndim == 2 else offset


class LabelCoding(Protocol):
    """Observations of a block as numbers."""

    def __call__(self, y: NDArray[Any]) -> Array: ...
