"""Sums over all sites that full covariances need: values, slopes H̃ᵀψ′ and curvatures H̃ᵀΓH̃.

In coordinates u whitened by the factors on w itself, w = μ + Lu. A fit that needs these alone keeps nothing per site,
so that it is the same whether the rows are in memory or in blocks elsewhere (Challis (2013), §4.6.2): rows in memory
are one block that is kept here, whitened once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance, Whitening
from latlin.distributed.blocks import Block, add, combine_pairwise
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.forms.projections import Projections, whitened_projections
from latlin.inference.forms.site_family import FLATTEST, STEADY, LocalGaussian, SiteForm
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.mode import Expansion
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky, dot
from latlin.potentials.base import ExpectedLog

#: coordinates from which on products of rows with vectors are cheap beside those of matrices
BROAD = 16
#: coordinates from which on products in single precision are quicker
WIDE = 32
#: most steps of a mean under one covariance; they end this much nearer than they began, or at this many deviations
MEAN_STEPS, NEARER, AT_MEAN = 3, 1e-2, 1e-9


class Sums(NamedTuple):
    """Σ value, Σ h̃_n slope_n and the upper triangle of Σ γ_n h̃_n h̃_nᵀ over all sites."""

    value: float
    slope: Array
    curvature: Array


#: (projections, sites, x, *shared) → Sums over these sites
Terms = Callable[..., Sums]


def point_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """ψ, ψ′ and −ψ″ at x."""
    value, first, second = sites.expansion(x)
    return _summed(projections, value, first, -second)


def steady_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """As `point_terms`, with |ψ″|, at least a share of a typical curvature, where −ψ″ may be negative."""
    first, second = sites.slopes(x)
    gamma = np.maximum(np.abs(second), STEADY * sites.typical_precision())
    return _summed(projections, sites.log_density(x), first, gamma)


def smoothed_terms(projections: Projections, sites: Sites, x: Array, epsilon: float) -> Sums:
    """Sites smoothed by ε of their width where they have a kink, with the size of their curvature."""
    value, slope, curvature = sites.smoothed(x, epsilon)
    return _summed(projections, value, slope, np.abs(curvature))


def typical_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """The sites' typical curvature and nothing else."""
    return _summed(projections, np.zeros(len(x)), np.zeros(len(x)), sites.typical_precision())


def expected_terms(projections: Projections, sites: Sites, x: Array, factor: Array) -> Sums:
    """⟨ψ⟩, ∂⟨ψ⟩/∂m and γ̂ = −2 ∂⟨ψ⟩/∂s² under N(x_n, ‖C⁻ᵀh̃_n‖²); a value of −∞ where there is no finite one."""
    expected = sites.finite_expected_log(x, projections.variances(factor))
    if expected is None:
        dim = projections.shape[1]
        return Sums(-np.inf, np.zeros(dim), np.zeros((dim, dim), order="F"))
    return _summed(projections, expected.value, expected.d_mean, -2.0 * expected.d_var)


def _summed(projections: Projections, value: Array, slope: Array, gamma: Array) -> Sums:
    total = float(value.sum())
    return Sums(total if np.isfinite(total) else -np.inf, projections.transposed_times(slope), projections.gram(gamma))


class HeldSites(NamedTuple):
    """The rows of a site factor in whitened coordinates, and its sites as functions of x = H̃u."""

    projections: Projections
    sites: Sites


class MeanPoint(NamedTuple):
    """A mean u under a given covariance: the bound but for what depends on that alone, its slope, and x and ⟨ψ⟩."""

    u: Array
    value: float
    slope: Array
    x: list[Array]
    expected: list[ExpectedLog]

    @property
    def stand_ins(self) -> SiteParameters:
        """γ̂ = −2 ∂⟨ψ⟩/∂s² and ν̂ = ∂⟨ψ⟩/∂m + γ̂x."""
        gammas = [-2.0 * expected.d_var for expected in self.expected]
        nus = [expected.d_mean + gamma * x for expected, gamma, x in zip(self.expected, gammas, self.x, strict=True)]
        return SiteParameters(np.concatenate(gammas), np.concatenate(nus))


class Expectation(NamedTuple):
    """⟨log joint⟩ at N(u, P⁻¹) but for what depends on P alone, its slope in u, and P̂ = Λ̃ + H̃ᵀΓ̂H̃."""

    u: Array
    value: float
    slope: Array
    precision: Array


@dataclass(frozen=True)
class SumForm:
    """A model whose sites are reached through sums alone, in coordinates whitened by the factors on w itself.

    Parameters
    ----------
    own : SiteForm
        Of the factors on w itself; its coordinates are those of the sums.
    here : tuple of HeldSites
        Sites in memory, one entry per factor, in the model's order.
    elsewhere : BlockModel, optional
        The model whose observations are in blocks.
    known : dict
        The last expectation, since the stand-ins of the optimum are asked for after it was found.
    """

    own: SiteForm
    here: tuple[HeldSites, ...]
    elsewhere: BlockModel | None = None
    known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return self.own.rank

    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        """Sums over all sites at u: one pass over the rows."""
        parts: list[tuple[Any, ...]] = [terms(*part, part.projections.times(u), *shared) for part in self.here]
        if self.elsewhere is not None:
            whitening, w = self.own.whitening, self.own.weights(u)
            parts.append(self.elsewhere.total(block_sums, terms, whitening, w, *shared))
        total = combine_pairwise(parts, add)
        return Sums(float(total[0]), total[1], total[2])

    def expectation(self, u: Array, precision: Cholesky, moving: bool = True) -> Expectation | None:
        """⟨log joint⟩ at N(u, P⁻¹) or, for rows in memory, at a better mean if `moving`; None where it is infinite."""
        if self.elsewhere is not None:
            sums = self.sums(expected_terms, u, precision.factor)
            value = sums.value + self.own.log_gaussian(u)
            return Expectation(u, value, self.slope(u, sums), self.precision(sums)) if np.isfinite(value) else None
        variances = self._variances(precision.factor)
        point = self._mean_point(u, variances)
        if point is None:
            return None
        if moving and self.rank >= BROAD:
            point = self._better_mean(point, variances, precision)
        self.known["last"] = point, precision.factor
        grams = [part.projections.gram(-2.0 * log.d_var) for part, log in zip(self.here, point.expected, strict=True)]
        return Expectation(point.u, point.value, point.slope, self._with_quadratic(sum(grams[1:], grams[0])))

    def rough_precision(self, gammas: list[Array]) -> Array:
        """Upper triangle of Λ̃ + H̃ᵀΓH̃ for the rows in memory, to the digits that a safeguarded step needs."""
        grams = [self._roughly(part, "gram")(gamma) for part, gamma in zip(self.here, gammas, strict=True)]
        return self._with_quadratic(sum(grams[1:], grams[0]))

    def rough_expectation(self, u: Array, precision: Cholesky) -> MeanPoint | None:
        """A better mean than u under P for the rows in memory, to such digits; None where the value is infinite."""
        variances = [self._roughly(part, "variances")(precision.factor) for part in self.here]
        point = self._mean_point(u, variances)
        return None if point is None else self._better_mean(point, variances, precision)

    def _roughly(self, part: HeldSites, product: str) -> Callable[[Array], Array]:
        """A product with rows by its name; in single precision where it is offered and quicker."""
        exact = getattr(part.projections, product)
        rough = self.own.quadratic is None and self.rank >= WIDE
        return getattr(part.projections, f"rough_{product}", exact) if rough else exact

    def _variances(self, factor: Array) -> list[Array]:
        return [part.projections.variances(factor) for part in self.here]

    def _better_mean(self, point: MeanPoint, variances: list[Array], precision: Cholesky) -> MeanPoint:
        """Where the bound is nearly highest in the mean under one covariance.

        At the optimum P is the curvature in u too, so that steps P⁻¹g with the factor at hand lead there quickly. They
        cost products of rows with vectors, where another P costs products with matrices.
        """
        enough = AT_MEAN
        for _ in range(MEAN_STEPS):
            step = precision.solve(point.slope)
            away = float(np.sqrt(max(dot(point.slope, step), 0.0)))
            if away <= enough:
                break
            moved = self._mean_point(point.u + step, variances)
            if moved is None or not moved.value >= point.value:
                break
            point, enough = moved, max(enough, NEARER * away)
        return point

    def _mean_point(self, u: Array, variances: list[Array]) -> MeanPoint | None:
        value, slope = self.own.log_gaussian(u), self.own.linear - self.own.times_quadratic(u)
        projected = [part.projections.times(u) for part in self.here]
        logs: list[ExpectedLog] = []
        for part, x, variance in zip(self.here, projected, variances, strict=True):
            log = part.sites.finite_expected_log(x, variance)
            if log is None:
                return None
            value, slope = value + float(log.value.sum()), slope + part.projections.transposed_times(log.d_mean)
            logs.append(log)
        return MeanPoint(u, value, slope, projected, logs) if np.isfinite(value) else None

    def stand_ins(self, u: Array, factor: Array) -> SiteParameters | None:
        """γ̂ and ν̂ of all sites under N(u, (CᵀC)⁻¹); None where some are elsewhere."""
        if self.elsewhere is not None:
            return None
        point, last = self.known.get("last", (None, None))
        if point is None or not (np.array_equal(point.u, u) and np.array_equal(last, factor)):
            point = self._mean_point(u, self._variances(factor))
        assert point is not None  # the bound was finite there
        return point.stand_ins

    def slope(self, u: Array, sums: Sums) -> Array:
        """Gradient of the log joint (or of its expectation): b̃ − Λ̃u + H̃ᵀψ′."""
        return self.own.linear - self.own.times_quadratic(u) + sums.slope

    def precision(self, sums: Sums) -> Array:
        """Upper triangle of Λ̃ + H̃ᵀΓH̃."""
        return self._with_quadratic(sums.curvature)

    def _with_quadratic(self, curvature: Array) -> Array:
        p = np.array(curvature, order="F")
        if self.own.quadratic is None:
            p[np.diag_indices(self.own.rank)] += 1.0
        else:
            p += self.own.quadratic
        return p

    def gaussian(self, u: Array, precision: Cholesky) -> Gaussian:
        """The Gaussian over w of a mean and a precision in these coordinates."""
        return Gaussian(self.own.weights(u), PrecisionCovariance(self.own.whitening, precision))

    def weights(self, u: Array) -> Array:
        """w of a coordinate vector."""
        return self.own.weights(u)

    def coordinates(self, w: Array) -> Array:
        """The coordinate vector of a w."""
        return self.own.coordinates(w)

    def first_coordinates(self) -> Array:
        """Where a search for the mode starts without any other word: the prior mean."""
        return np.zeros(self.rank)

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion:
        """The log joint about u, in one pass; with `smoothing`, that of smoothed sites. The form keeps P."""
        sums = self.sums(point_terms, u) if smoothing is None else self.sums(smoothed_terms, u, smoothing)
        objective = self.own.log_gaussian(u) + sums.value
        objective = objective if np.isfinite(objective) else -np.inf
        return Expansion(u, objective, self.slope(u, sums), self.precision(sums))

    def newton_step(self, at: Expansion) -> Array | None:
        """P⁻¹g; None where P is not definite."""
        return _solve(at.kept, at.gradient)

    def steady_step(self, at: Expansion) -> Array | None:
        """As `newton_step` with |γ|, at least a share of a typical curvature."""
        return _solve(self.precision(self.sums(steady_terms, at.u)), at.gradient)

    def curvature(self, at: Expansion) -> Array:
        """Upper triangle of minus the Hessian of the log joint."""
        return at.kept

    def gaussian_at(self, at: Expansion) -> LocalGaussian | None:
        """The Gaussian with the curvature there; its mean is where one more Newton step leads, as in site form.

        None where the curvature vanishes or has the wrong sign.
        """
        try:
            chol = cholesky(at.kept)
        except ValueError:
            return None
        if self.own.quadratic is not None and np.linalg.eigvalsh(at.kept, UPLO="U")[0] < FLATTEST:
            return None
        return LocalGaussian(self.gaussian(at.u + chol.solve(at.gradient), chol), chol.log_det, None)


def _solve(precision: Array, gradient: Array) -> Array | None:
    try:
        return cholesky(precision).solve(gradient)
    except ValueError:
        return None


def block_sums(
    block: Block, reading: Reading, terms: Terms, whitening: Whitening, w: Array, *shared: Any
) -> tuple[Any, ...]:
    """Terms of a block at w."""
    dim = len(w)
    total: tuple[Any, ...] = Sums(0.0, np.zeros(dim), np.zeros((dim, dim), order="F"))
    for observed in read_pieces(block, reading):
        projections = whitened_projections(observed.rows, whitening)
        total = add(total, terms(projections, observed.sites, observed.times(w), *shared))
    return total
