"""One response on one design: the model for given hyperparameters, and the gradient of its evidence in them.

The rows are in memory or in blocks; `HeldRows` and `BlockRows` are the two places, and nothing above knows which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from latlin.distributed.blocks import Block, Blocks
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.linear._checks import FirstPass, LabelCoding, take_column
from latlin.linear._design import FLAT, CoefficientPrior, Design
from latlin.numerics.arrays import Array, largest
from latlin.potentials import families
from latlin.potentials.base import Potential
from latlin.potentials.checks import RefusedSites, countable, finite, refuse
from latlin.potentials.families import FAMILIES, Described, Family
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.poisson import Poisson

# --- The families of the linear estimators, and what was observed of the rows in memory.


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


class PoissonRate(Poisson):
    """Poisson sites that also take non-integer y ≥ 0, such as averaged counts: y! becomes Γ(y + 1)."""

    def __init__(self, y: ArrayLike) -> None:
        values = finite("y", y)
        refuse("y", values, values < 0, "numbers of at least zero")
        self._store(y=countable("y", values))


AVERAGED_COUNTS = replace(FAMILIES["poisson"], template=PoissonRate(0.0))


def _chosen(*names: str) -> dict[str, Family]:
    return {name: FAMILIES[name] for name in names if name in FAMILIES}


#: noise about the linear predictor
LOCATION = _chosen("gaussian", "student-t", "laplace", "cauchy", "logistic")
COUNTS = {**_chosen(*families.COUNTS), "poisson": AVERAGED_COUNTS}
SURVIVAL = _chosen(*families.TIMES)
AMOUNTS = _chosen(*families.AMOUNTS)


#: hyperparameters by name: "prior_scale" and those of the likelihood and of the prior
Values = Mapping[str, Any]


#: prior standard deviations, in their unit, beyond which precisions may be lost in rounding
WIDEST = 1e6


@contextmanager
def naming_wide_priors(problem: LinearProblem, values: Values) -> Iterator[None]:
    """What a fit lost to rounding under a very wide prior is said with the name of its scale."""
    try:
        yield
    except ValueError as error:
        scale = max(float(np.max(values["prior_scale"])), problem.intercept[1])
        if scale <= WIDEST * max(problem.unit, 1.0) or "positive definite" not in str(error):
            raise
        raise ValueError(f"prior_scale or intercept_scale is too large for a fit, got {scale:.3g}: {error}") from error


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


@dataclass(frozen=True)
class LinearReading:
    """Rows of features and observations as sites; rows of weight zero are left out.

    Parameters
    ----------
    design : Design
    family : Family
    values : dict
        Hyperparameters.
    coding : Coding
    column : int
        Which of several offsets per row.
    """

    design: Design
    family: Family
    values: Values
    coding: LabelCoding
    column: int

    def __call__(self, block: Block) -> Observed | None:
        y = take_column(block.y, len(self.family.columns))
        X, weight, offset = block.X, block.weight, block.offset
        if weight is not None:
            weight = np.asarray(weight, float)
            kept = weight > 0.0
            if not kept.any():
                return None
            if not kept.all():
                X, y, weight, offset = X[kept], y[kept], weight[kept], None if offset is None else offset[kept]
        if offset is not None:
            offset = np.asarray(offset, float)
            offset = offset[:, self.column] if offset.ndim == 2 else offset
        try:
            sites = self.family.potential(self.coding(y), self.values)
        except RefusedSites as error:
            raise ValueError(f"in block {block.number} of the rows {error}") from None
        return Observed(self.design.rows(X), sites, weight, offset)

    def kind(self) -> Potential:
        return self.family.kind(self.values)


@dataclass(frozen=True)
class Summarised:
    """What families ask of targets, from the table of the first pass."""

    table: FirstPass
    class_weight: Array | None = None

    def mean(self) -> float:
        assert self.table.response is not None  # numbers have one
        return float(self.table.response.mean[0])

    def residual_moments(self) -> tuple[float, float]:
        assert self.table.response is not None  # numbers have one
        return float(self.table.response.mean[1]), float(np.sqrt(self.table.response.variance[1]))

    def log_exposure(self) -> float | None:
        total = self.table.log_exposure
        return None if total is None else total - float(np.log(self.table.features.weight))

    def class_weights(self, count: int) -> Array:
        assert self.class_weight is not None  # labels have them
        return self.class_weight


@dataclass(frozen=True)
class BlockRows:
    """Rows in blocks.

    Parameters
    ----------
    blocks : Blocks
    table : Table
        What the first pass found.
    targets : Summarised
    coding : Coding
    column : int
    digest : str
        Of the rows, where a checkpoint is kept.
    """

    blocks: Blocks
    table: FirstPass
    targets: Summarised
    coding: LabelCoding
    column: int
    digest: str = ""

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def feature_size(self, n_features: int) -> float:
        """The root mean square of the features."""
        moments = self.table.features
        return float(np.sqrt(np.mean(moments.variance + moments.mean**2))) or 1.0

    def model(self, prior: GaussianFactor | SiteFactor, design: Design, family: Family, values: Values) -> BlockModel:
        reading = LinearReading(design, family, dict(values), self.coding, self.column)
        return BlockModel(LatentLinearModel([prior]), self.blocks, reading, self._signature(design, values))

    def _signature(self, design: Design, values: Values) -> str:
        """What distinguishes these data and hyperparameters from others."""
        digest = hashlib.sha256(repr((self.table.n_rows, self.coding, self.column, self.digest)).encode())
        moments = [m for m in (self.table.features, self.table.response) if m is not None]
        numbers = [part for m in moments for part in m] + [values[name] for name in sorted(values)]
        for part in (*numbers, design.centre, design.spread):
            digest.update(np.asarray(part, float).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class LinearProblem:
    """Observations, likelihood and prior; hyperparameters are given to `model`.

    Parameters
    ----------
    observed : HeldRows or BlockRows
    design : Design
    family : Family
    prior : Prior
    intercept : tuple of float
        Mean and standard deviation of the prior of the intercept.
    """

    observed: HeldRows | BlockRows
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

    @property
    def has_gaussian_noise(self) -> bool:
        """Whether the noise is Gaussian about y, or about its logarithm (of rows in memory)."""
        template = self.family.template
        return type(template) is Gaussian or (template.gaussian and isinstance(self.observed, HeldRows))

    def model(self, values: Values) -> Model:
        """The prior first, then the observations."""
        prior = self.prior.factor(self.design, self.intercept, values)
        return self.observed.model(prior, self.design, self.family, values)

    def gradient(self, posterior: Posterior, values: Values) -> dict[str, Any]:
        """∂ log Z / ∂ hyperparameter, re-optimised; one number per feature for "prior_scale"."""
        slopes = evidence_gradient(posterior)
        found, names = slopes.sites[-1], self.family.parameters
        likelihood = {n: found[n] if np.ndim(values[n]) else float(np.sum(found[n])) for n in names}
        return {**likelihood, **self.prior.gradient(self.design, values, slopes)}

    @cached_property
    def feature_size(self) -> float:
        """The root mean square of features that are not standardised; 1 where they are."""
        if np.any(self.design.spread != 1.0):
            return 1.0
        size = self.observed.feature_size(self.design.n_features)
        # what centring leaves of constant features is rounding
        return size if size > FLAT * largest(self.design.centre) else 1.0

    @cached_property
    def unit(self) -> float:
        """The natural size of a coefficient of a standardised feature."""
        return self.family.unit(self.targets)
