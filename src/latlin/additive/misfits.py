"""What residuals of an additive model show: curves and slopes that its coefficients miss, and noise that is not the
family's own.

The rows are looked at with the stand-ins of their sites, −½γx² + νx, at the likeliest hyperparameters. With g = ν − γx
at the posterior mean and W = γ the gradient of the posterior is zero, and its part g has the covariance V of
`latlin.diagnostics.residual_checks`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from latlin.additive.blocks import BlockProblem
from latlin.additive.expression import is_function, is_name
from latlin.additive.fixed import FixedPart
from latlin.additive.group import GroupPart
from latlin.additive.problem import AdditiveProblem
from latlin.additive.term import Values
from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import ProbedPrecisionCovariance
from latlin.diagnostics.model_checks import Check, Remedies
from latlin.diagnostics.residual_checks import (
    CUT_RESIDUAL,
    FEWEST_ROWS,
    Scores,
    check_curves,
    check_neighbours,
    check_noise,
    check_slopes,
    check_spread,
    curved,
    excess_of,
    standardised,
)
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array

#: rows whose own variance is looked at, evenly spaced of more
MOST_ROWS = 5000
#: columns that are looked at, and levels of a group, evenly chosen of more
MOST_COLUMNS, MOST_LEVELS = 100, 300
#: share of the rows that coefficients may determine for residuals to say something of the predictor, and of the noise
DETERMINED, DETERMINED_NOISE = 0.5, 0.25

OF_FORMULAS = Remedies(
    feature="column",
    curve="Write s({name}) or {name} + I({name}**2) in place of {name}",
    waves="Write s({name}) in place of {name}",
    slopes="Write (1 + {name} | {group})",
    far="Look at these rows, or use noise with heavy tails: --family student-t (in Python family='student-t')",
    heavy="Use noise with heavy tails: --family student-t (in Python family='student-t')",
    skewed="Model the logarithm of the response where it is positive, log(y) ~ …, or choose a family for positive "
    "amounts, such as --family gamma",
    uneven="Where the response is positive model its logarithm, log(y) ~ …, or use --family gamma; where it is not, "
    "--family student-t (in Python family='student-t') gives scattered rows less weight",
)
#: of families whose spread has a form of its own
OTHER_SPREAD = OF_FORMULAS._replace(
    uneven="Its intervals are too narrow in some places and too wide in others: try another family, or the logarithm "
    "of the response where it is positive"
)


def find_misfits(problem: AdditiveProblem, fit: Posterior, values: Values) -> list[Check]:
    """The checks that can be made of the rows in memory.

    Parameters
    ----------
    problem : AdditiveProblem
    fit : Posterior
        At the likeliest hyperparameters.
    values : mapping
        These hyperparameters.
    """
    density = fit.density
    if isinstance(problem, BlockProblem) or fit.sites is None or not isinstance(density, Gaussian):
        return []
    if isinstance(density.structure, ProbedPrecisionCovariance) or problem.family.of_quantiles:
        return []
    seen = _SeenRows(problem, fit, values)
    if seen.count < FEWEST_ROWS or seen.determined > DETERMINED:
        return []
    found: list[Check] = []
    for look in (seen.of_columns, seen.of_slopes, seen.of_noise):
        found += look()
        # a curve that is missing makes slopes and noise look odd too, and so do slopes that differ the noise
        if not all(check.passed for check in found):
            break
    return found


class _SeenRows:
    """The rows of a problem with the slopes and curvatures of their sites."""

    def __init__(self, problem: AdditiveProblem, fit: Posterior, values: Values) -> None:
        assert fit.sites is not None  # checked by the caller, both
        assert isinstance(fit.density, Gaussian)
        gamma, nu = (np.asarray(part, float) for part in fit.sites)
        self.problem, self.values, self.density = problem, values, fit.density
        at = problem.design @ fit.density.mean
        self.x = at + problem.offset
        self.slope = nu - gamma * (at - problem.design @ problem.mean)
        # sites that are not log-concave have curvatures of both signs: all take the mean square of their slopes
        self.curvature = (
            gamma if np.all(gamma > 0.0) else np.full_like(gamma, max(float(np.mean(self.slope**2)), 1e-300))
        )
        weight = problem.observed.weight
        self.weight = np.ones(len(gamma)) if weight is None else weight
        self.count = float(self.weight.sum())
        self.some = np.arange(0, len(gamma), max(1, len(gamma) // MOST_ROWS))
        self.variance = np.asarray(fit.density.project(problem.design[self.some]).variance)
        self.excess = excess_of(float(self.slope**2 @ (1.0 / self.weight)), float(self.curvature.sum()))

    @property
    def determined(self) -> float:
        """How many coefficients the rows determine, per row."""
        each = np.clip(self.curvature[self.some] * self.variance, 0.0, 1.0)
        return float(each.sum() / self.weight[self.some].sum())

    @cached_property
    def columns(self) -> tuple[list[str], Array]:
        """Numbers that enter as coefficients, standardised: names and values."""
        for part, span in zip(self.problem.parts, self.problem.spans, strict=True):
            if isinstance(part, FixedPart):
                places = [k for k, name in enumerate(part.names) if _is_number(name)][:MOST_COLUMNS]
                table = self.problem.design[:, [span.start + k for k in places]].toarray()
                mean = self.weight @ table / self.count
                sd = np.sqrt(np.maximum(self.weight @ (table - mean) ** 2 / self.count, 0.0))
                keep = np.flatnonzero(sd > 1e-9)
                self.units = [float(part.spread[places[k]] * sd[k]) for k in keep]
                return [part.names[places[k]] for k in keep], (table[:, keep] - mean[keep]) / sd[keep]
        return [], np.zeros((len(self.x), 0))

    def of_columns(self) -> list[Check]:
        """Curves along the columns, and neighbours that err alike."""
        names, X = self.columns
        if not names:
            return []
        Z = curved(X, np.ones(X.shape[1]))
        Z -= self.weight @ Z / self.count
        weighted = self.curvature[:, None] * Z
        cross = np.asarray(self.problem.design.T @ weighted)
        squares = np.einsum("nk,nk->k", weighted, Z)
        left = squares - np.einsum("dk,dk->k", cross, np.asarray(self.density.times_covariance(cross)))
        scores = Scores(Z.T @ self.slope, left, squares, self.excess, self.count)
        found = check_curves(scores, names, OF_FORMULAS)
        if not found.passed and self._is_uneven():
            # which makes sums of far rows vary more
            found = check_curves(scores._replace(excess=self._excess_along(Z)), names, OF_FORMULAS)
        if found.passed and np.ptp(self.weight) == 0.0:
            again = check_neighbours(self.slope / np.sqrt(self.curvature), X, names, OF_FORMULAS)
            found = found if again is None else again
        return [found]

    def of_slopes(self) -> list[Check]:
        """Slopes of the columns that differ between the levels of groups that give them one slope."""
        names, X = self.columns
        found, units = [], []
        for part, span in zip(self.problem.parts, self.problem.spans, strict=True):
            if not isinstance(part, GroupPart) or "Intercept" not in part.coding.names:
                continue
            levels = indicator_of(self.problem.design, part, span)
            for k, name in enumerate(names):
                if name not in part.coding.names:
                    found.append((name, part.label, self._scores(levels, X[:, k])))
                    units.append(self.units[k])
        return [check_slopes(found, units, OF_FORMULAS)] if found else []

    def _scores(self, levels: sparse.csr_array, x: Array) -> Scores:
        """One score per level: of a slope of its own along x."""
        rows = sparse.csr_array((levels.T @ sparse.diags_array(self.curvature * x)) @ self.problem.design)
        slope, squares = levels.T @ (x * self._cut_slope), levels.T @ (self.curvature * x**2)
        left = squares - np.asarray(self.density.structure.project(rows))
        return Scores(slope, left, squares, self._excess_along(x[:, None]), self.count)

    def _is_uneven(self) -> bool:
        """Whether noise grows along a column."""
        return self.residuals is not None and not check_spread(*self.residuals[:2]).passed

    def _excess_along(self, columns: Array) -> Array:
        """φ for the sums of columns times slopes: noise that grows along them makes these vary more."""
        sums = columns.T**2 @ np.column_stack([self.slope**2 / self.weight, self.curvature])
        return np.maximum(self.excess, sums[:, 0] / np.maximum(sums[:, 1], 1e-300))

    @cached_property
    def _cut_slope(self) -> Array:
        """Slopes of the sites, those of Gaussian noise cut: a few far rows are no slopes of their groups."""
        if not self.problem.family.template.gaussian:
            return self.slope
        most = CUT_RESIDUAL * np.sqrt(self.curvature * self.weight)
        return np.clip(self.slope, -most, most)

    def of_noise(self) -> list[Check]:
        """How the residuals of numbers are spread, where the family has a scale."""
        if self.residuals is None:
            return []
        residual, along, rows = self.residuals
        if not self.problem.family.template.gaussian:
            return [check_spread(residual, along, OTHER_SPREAD)]
        if _is_coarse(self.problem.observed.y, float(np.sqrt(np.median(self.weight / self.curvature)))):
            return [check_spread(residual, along, OF_FORMULAS)]
        return [check_noise(residual, along, OF_FORMULAS, rows)]

    @cached_property
    def residuals(self) -> tuple[Array, list[tuple[str, Array]], NDArray[np.int64]] | None:
        """Standard normal ones, what their spread may grow along, and their rows of the table."""
        problem, observed, family = self.problem, self.problem.observed, self.problem.family
        measured = family.learnt(observed) and not (family.whole or family.ordered or family.binary)
        timed = observed.event is not None or observed.trials is not None or observed.se is not None
        weighted = problem.copies is None and np.ptp(self.weight) > 0.0
        if not measured or timed or weighted or self.determined > DETERMINED_NOISE:
            return None
        some, (names, X) = self.some, self.columns
        if family.template.gaussian:
            slope, curvature = (part[some] / self.weight[some] for part in (self.slope, self.curvature))
            residual = standardised(slope, curvature, self.variance)
        else:
            sites = family.potential(observed, self.values).select(some)
            level = sites.predictive(self.x[some], np.zeros(len(some))).cdf(observed.y[some])
            residual = ndtri(np.clip(level, 1e-15, 1.0 - 1e-15))
        place, rows = self._rows_of_the_table()
        along = [("", self.x[some][place]), *((name, X[some, k][place]) for k, name in enumerate(names))]
        residual = np.asarray(residual)[place]
        return None if len(residual) < FEWEST_ROWS or np.std(residual) == 0.0 else (residual, along, rows)

    def _rows_of_the_table(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places among the rows that are looked at, and the rows of the table that they stand for."""
        copies = self.problem.copies
        if copies is None:
            return np.arange(len(self.some)), self.some
        place = np.full(len(self.x), -1)
        place[self.some] = np.arange(len(self.some))
        rows = np.flatnonzero(place[copies] >= 0)
        return place[copies][rows], rows


def indicator_of(design: sparse.csr_array, part: GroupPart, span: slice) -> sparse.csr_array:
    """Which row is of which level of a group with an intercept; of many levels those of evenly chosen ones."""
    first = span.start + part.coding.names.index("Intercept")
    count = len(part.levels)
    levels = np.unique(np.linspace(0, count - 1, min(count, MOST_LEVELS)).astype(int))
    return sparse.csr_array(sparse.csc_array(design)[:, first + len(part.sds) * levels])


def _is_number(name: str) -> bool:
    """Whether a coefficient is of a column of numbers or of a function of one: a polynomial has its curve already."""
    return (is_name(name) and name != "Intercept") or (is_function(name) and not name.startswith("I("))


def _is_coarse(y: Array, sigma: float) -> bool:
    """Whether the response has steps as wide as its noise, so that residuals cannot look like a normal variable."""
    steps = np.diff(np.unique(y))
    return bool(len(steps)) and float(np.median(steps)) >= sigma
