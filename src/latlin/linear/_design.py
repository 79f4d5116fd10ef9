"""From rows of features to the coordinates of the model, in the user's own units.

The unknowns are w = (coefficients, intercept), and a row of the model is (x − centre, 1): standardising is a matter of
the prior alone, whose standard deviation for coefficient j is prior_scale / sd_j, and of where the intercept is
measured. Sparse rows are scaled in this way but not centred, which would make them dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.utils.sparsefuncs import mean_variance_axis

from latlin import potentials
from latlin.inference.evidence.terms import EvidenceGradient
from latlin.inference.model import GaussianFactor, SiteFactor
from latlin.numerics.arrays import Array, summable
from latlin.numerics.stored import storable
from latlin.potentials.base import Potential
from latlin.potentials.ranges import Between, Range

#: rows that stay in the cache
PIECE = 512


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
    flat = variance <= (1e-10 * mean) ** 2
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


# --- Priors of the coefficients: independent Gaussians, or sites with kinks or heavy tails for sparse solutions.
#
# Both are measured in the spreads of the design: the scale of coefficient j is prior_scale / spread_j. The intercept
# has its own location and (wide) scale, which are never learnt.


Values = Mapping[str, Any]
#: nodes over which the share of the slab is averaged
NODES = 64
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


def _locations_and_scales(design: Design, intercept: tuple[float, float], values: Values) -> tuple[Array, Array]:
    count = design.n_features
    loc, scale = (np.broadcast_to(values.get(n, 0.0), count) / design.spread for n in ("prior_mean", "prior_scale"))
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
        mean, scale = _locations_and_scales(design, intercept, values)
        return GaussianFactor(mean, summable("prior_scale", scale) ** 2)

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


@dataclass(frozen=True)
class SitePrior:
    """One potential a coefficient, of its family's own scale prior_scale / spread_j."""

    template: Potential

    def _names(self) -> dict[str, str]:
        """The estimator's name of each parameter of the potential but its scale."""
        return {f"prior_{name}": name for name in self.template.free if name != "scale"}

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self._names())

    def first(self) -> dict[str, Any]:
        return {own: float(self.template.value_of(name)) for own, name in self._names().items()}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {own: self.template.free[name] for own, name in self._names().items()}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> SiteFactor:
        loc, scale = _locations_and_scales(design, intercept, values)
        shapes = {name: values[own] for own, name in self._names().items()}
        return SiteFactor(None, self.template.replace(loc=loc, scale=scale, **shapes))

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        found = slopes.sites[0]
        shapes = {own: float(np.sum(found[name])) for own, name in self._names().items()}
        return {"prior_scale": found["scale"][: design.n_features] / design.spread, **shapes}


@dataclass(frozen=True)
class SpikePrior:
    """w_j is next to nothing, or with a chance N(0, (prior_scale / spread_j)²); the intercept is wide for certain."""

    #: standard deviation of the spike, as a share of the slab's, and the chance of the intercept's slab
    spike: float = 0.02
    certain: float = 1.0 - 1e-9
    parameters: tuple[str, ...] = ("prior_probability",)

    def first(self) -> dict[str, Any]:
        return {"prior_probability": 0.2}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {"prior_probability": potentials.SpikeAndSlab.free["probability"]}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> SiteFactor:
        loc, slab = _locations_and_scales(design, intercept, values)
        # the spike and the slab are about zero: an intercept about another number has a slab that reaches it
        slab = np.hypot(slab, loc)
        chance = np.where(np.arange(len(slab)) < design.n_features, values["prior_probability"], self.certain)
        return SiteFactor(None, potentials.SpikeAndSlab(chance, slab, self.spike * slab))

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        found, some = slopes.sites[0], slice(0, design.n_features)
        wide = found["slab"][some] + self.spike * found["spike"][some]
        return {"prior_scale": wide / design.spread, "prior_probability": float(np.sum(found["probability"][some]))}


def slab_shares(mean: Array, sd: Array, scale: Array, chance: float) -> Array:
    """⟨slab(w)/(slab(w) + spike(w))⟩ under N(w | mean, sd²), by Gauss–Hermite nodes."""
    node, weight = np.polynomial.hermite_e.hermegauss(NODES)
    w = mean[:, None] + sd[:, None] * node
    slab = potentials.Gaussian(0.0, 1.0).log_density(w / scale[:, None]) + np.log(chance)
    narrow = SpikePrior.spike
    spike = potentials.Gaussian(0.0, 1.0).log_density(w / (narrow * scale[:, None])) + np.log((1.0 - chance) / narrow)
    return np.asarray(expit(slab - spike) @ (weight / weight.sum()))


SPARSE: dict[str, CoefficientPrior] = {
    "laplace": SitePrior(potentials.Laplace()),
    "student-t": SitePrior(potentials.StudentT(3.0)),
    "generalised-normal": SitePrior(potentials.GeneralisedNormal(0.8)),
    "horseshoe": SitePrior(potentials.Horseshoe()),
    "spike-and-slab": SpikePrior(),
}
