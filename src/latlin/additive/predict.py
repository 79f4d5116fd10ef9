"""New rows: linear predictors, expected responses, densities and draws, averaged over the hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from latlin.additive.family import ObservedResponse, ResponseFamily
from latlin.additive.group import GroupPart, UnseenLabels
from latlin.additive.problem import rows_of, spans_of
from latlin.additive.term import Part
from latlin.densities.density import Mixture
from latlin.diagnostics.inference_data import inference_data
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.averaged import AveragedPredictive
from latlin.potentials.base import Potential
from latlin.potentials.predictive import censored_pit, class_pit, nearest_interval

# --- Draws of the posterior of an additive model: coefficients of all terms together with their hyperparameters.


class PosteriorDraws:
    """Draws of a fitted `AdditiveModel`."""

    if TYPE_CHECKING:
        posterior_: Any
        random_state: RandomState
        _components: list[Any]
        _parts: tuple[Any, ...]
        _family: Any
        _frame: Any
        _problem_: Any

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draws of all coefficients of all terms, in the order of `posterior_`, of shape (n_samples, unknowns).

        Columns are standardised inside the model; draws in the units of the table are those of `to_arviz`.
        """
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        return np.asarray(self.posterior_.sample(check_whole("n_samples", n_samples, 1), rng))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`), in the units of the table.

        The group posterior has "coefficients", one variable per term with the names of its levels or places, and one
        per hyperparameter; they belong together draw by draw. A model that was fitted here, to a table in memory, also
        has log_likelihood and observed_data ("y"). Needs ArviZ.
        """
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        count = check_whole("n_samples", n_samples, 1)
        shares = np.array([component.share for component in self._components])
        chosen = np.sort(rng.choice(len(shares), count, p=shares / shares.sum()))
        w = np.concatenate(
            [np.asarray(self._components[k].density.sample(int(np.sum(chosen == k)), rng)) for k in np.unique(chosen)]
        )
        order = rng.permutation(count)
        chosen, w = chosen[order], w[order]
        groups: dict[str, dict[str, Array]] = {"posterior": self._in_units(w) | self._learnt(chosen)}
        if self._frame is not None:
            groups["log_likelihood"] = {"y": self._log_likelihood(chosen, w)[None]}
            y, copies = self._problem_.observed.y, self._problem_.copies
            groups["observed_data"] = {"y": y if copies is None else y[copies]}
        names = {part.label: list(part.names) for part in self._parts}
        coords = {f"{_name(label)}_dim": names[label] for label in names}
        return inference_data(groups, coords, {_name(label): [f"{_name(label)}_dim"] for label in names})

    def _in_units(self, w: Array) -> dict[str, Array]:
        """Effects of every term, of shape (1, draws, levels)."""
        spans = spans_of(self._parts)
        return {
            _name(part.label): np.asarray(part.report() @ w[:, span].T).T[None]
            for part, span in zip(self._parts, spans, strict=True)
        }

    def _learnt(self, chosen: Any) -> dict[str, Array]:
        """Hyperparameters of the component that each draw came from."""
        names = self._components[0].values
        return {name: np.array([self._components[k].values[name] for k in chosen])[None] for name in names}

    def _log_likelihood(self, chosen: Any, w: Array) -> Array:
        """log p(yₙ | draw), of shape (draws, rows)."""
        problem = self._problem_
        once = problem.observed if problem.copies is None else replace(problem.observed, weight=None)
        found = np.empty((len(w), len(once.y)))
        for k in np.unique(chosen):
            rows = np.flatnonzero(chosen == k)
            x = np.asarray(problem.design @ w[rows].T).T + problem.offset
            found[rows] = self._family.potential(once, self._components[k].values).log_density(x)
        return found if problem.copies is None else found[:, problem.copies]


class SeenGroups:
    """What a fitted `AdditiveModel` has seen of the groups of new rows."""

    if TYPE_CHECKING:
        _parts: tuple[Any, ...]

    def unseen_groups(self, frame: Any) -> dict[str, UnseenLabels]:
        """Labels of groups that no training row had, by the name of the term; terms whose labels are all known do
        not occur.

        Predictions of such rows have the variance of new groups, without a warning. Each entry has `rows` (which rows
        they are), `labels`, and `meant`: seen labels that differ in capitals and blanks only.
        """
        check_is_fitted(self, "posterior_")
        found = {part.label: part.unseen(frame) for part in self._parts if isinstance(part, GroupPart)}
        return {label: one for label, one in found.items() if one.labels}


def _name(label: str) -> str:
    """A term's name among the variables."""
    return "coefficients" if label == "fixed" else label


class PredictedComponent(NamedTuple):
    """The posterior at one value of the hyperparameters, and its share."""

    share: float
    values: dict[str, float]
    density: Any


def components_of(density: Any, values: list[dict[str, float]]) -> list[PredictedComponent]:
    """The components of a density over the hyperparameters, each with its values of these."""
    pairs = [pair for each in values for pair in (each.items() if isinstance(each, dict) else [(None, None)])]
    if not all(isinstance(name, str) and isinstance(number, Real) for name, number in pairs):
        raise ValueError("the values of hyperparameters must be numbers by their names")
    shares, parts = (density.weights, density.components) if isinstance(density, Mixture) else ([1.0], (density,))
    return [
        PredictedComponent(float(share), each, part) for share, each, part in zip(shares, values, parts, strict=True)
    ]


class PredictorMoments(NamedTuple):
    """Linear predictors of rows at one value of the hyperparameters."""

    share: float
    values: dict[str, float]
    mean: Array
    variance: Array


def predictor_moments(
    components: Sequence[PredictedComponent],
    parts: tuple[Part, ...],
    frame: Any,
    offset: Array,
    apart: tuple[str, ...] = (),
) -> list[PredictorMoments]:
    """Linear predictors, one entry per component; what the data do not know widens them."""
    found = []
    for share, values, density in components:
        design, fresh = rows_of(parts, frame, values, apart)
        at = density.project(design)
        variance = np.maximum(at.variance, 0.0)
        if fresh is not None:
            variance = variance + np.asarray(fresh.multiply(fresh).sum(axis=1)).ravel()
        found.append(PredictorMoments(share, values, np.asarray(at.mean) + offset, variance))
    return found


def pool_moments(parts: Sequence[PredictorMoments]) -> tuple[Array, Array]:
    """Mean and variance of a mixture."""
    mean = sum(part.share * part.mean for part in parts)
    variance = sum(part.share * (part.variance + (part.mean - mean) ** 2) for part in parts)
    return np.asarray(mean), np.asarray(variance)


def pooled_covariance(
    components: Sequence[PredictedComponent],
    parts: tuple[Part, ...],
    frame: Any,
    at: Sequence[PredictorMoments],
    apart: tuple[str, ...] = (),
) -> Array:
    """Covariance of the linear predictors of rows, averaged over the hyperparameters."""
    mean, _ = pool_moments(at)
    total = np.zeros((len(mean), len(mean)))
    for (share, values, density), here in zip(components, at, strict=True):
        design, fresh = rows_of(parts, frame, values, apart)
        half = np.asarray(design @ density.covariance())
        total += share * (np.asarray(design @ half.T) + np.outer(here.mean - mean, here.mean - mean))
        if fresh is not None:
            total += share * np.asarray((fresh @ fresh.T).todense())
    return total


def response_moments(
    parts: Sequence[PredictorMoments], family: ResponseFamily, blank: ObservedResponse
) -> tuple[Array, Array]:
    """Means and variances of new responses; of a binomial response those of the share of successes.

    Of a model of a quantile, those of the quantile.
    """
    if family.of_quantiles:
        return pool_moments(parts)
    found = []
    for part in parts:
        new = family.potential(blank, part.values).predictive(part.mean, part.variance)
        found.append(part._replace(mean=np.asarray(new.mean), variance=np.asarray(new.variance)))
    mean, variance = pool_moments(found)
    return (mean, variance) if blank.trials is None else (mean / blank.trials, variance / blank.trials**2)


def class_probabilities(parts: Sequence[PredictorMoments], family: ResponseFamily, blank: ObservedResponse) -> Array:
    """P(class) of new rows, one row each."""
    tables: Any = [family.potential(blank, part.values).predictive(part.mean, part.variance) for part in parts]
    return np.asarray(sum(part.share * one.probabilities for part, one in zip(parts, tables, strict=True)))


def log_density(parts: Sequence[PredictorMoments], family: ResponseFamily, observed: ObservedResponse) -> Array:
    """log p(y) of each row, its own observation."""
    logs = [
        np.log(part.share) + family.potential(observed, part.values).tilted_moments(part.mean, part.variance).log_z
        for part in parts
    ]
    return np.asarray(logsumexp(np.stack(logs), axis=0))


def integral_transforms(
    parts: Sequence[PredictorMoments], family: ResponseFamily, observed: ObservedResponse, rng: np.random.Generator
) -> Array:
    """Probability integral transforms of the rows' own observations: even on (0, 1) if the model is right."""
    each: Any = [family.potential(observed, part.values).predictive(part.mean, part.variance) for part in parts]
    described = each[0] if len(each) == 1 else AveragedPredictive(np.array([part.share for part in parts]), each)
    if family.ordered or (family.binary and observed.trials is None):
        table = np.asarray(sum(part.share * one.probabilities for part, one in zip(parts, each, strict=True)))
        return class_pit(table, observed.y.astype(int), rng)
    if observed.event is not None:
        beside = [part for part in (observed.event, observed.upper) if part is not None]
        return censored_pit(described, np.column_stack([observed.y, *beside]), rng)
    return np.asarray(described.pit(observed.y, rng))


def draw_predictors(
    components: Sequence[PredictedComponent],
    parts: tuple[Part, ...],
    frame: Any,
    offset: Array,
    count: int,
    rng: np.random.Generator,
    apart: tuple[str, ...] = (),
) -> list[tuple[dict[str, float], Array]]:
    """Draws of the linear predictors of all rows together: (hyperparameters, draws) of each component in use."""
    share = np.array([component.share for component in components])
    counts = rng.multinomial(count, share / share.sum())
    found = []
    for (_, values, density), number in zip(components, counts, strict=True):
        if number:
            design, fresh = rows_of(parts, frame, values, apart)
            x = np.asarray(density.sample(int(number), rng) @ sparse.csc_array(design.T)) + offset
            if fresh is not None:
                x = x + rng.standard_normal((int(number), fresh.shape[1])) @ sparse.csc_array(fresh.T)
            found.append((values, x))
    return found


def draw_responses(
    draws: Sequence[tuple[dict[str, float], Array]],
    family: ResponseFamily,
    blank: ObservedResponse,
    rng: np.random.Generator,
) -> Array:
    """Draws of new observations, one per row, in random order."""
    found = []
    for values, x in draws:
        potential: Potential = family.potential(blank, values)
        found.append(potential.sample(x, rng))
    return np.asarray(rng.permutation(np.concatenate(found)))


def interval_of_draws(draws: Array, coverage: float, family: ResponseFamily) -> Array:
    """Ends of intervals of new responses, shape (2, rows), from draws (draws, rows)."""
    ordered, rows = np.sort(draws, axis=0), np.arange(draws.shape[1])
    return nearest_interval(
        lambda q: ordered[np.ceil(q * len(draws) - 1e-9).astype(int) - 1, rows],
        lambda y: np.mean(draws <= y, axis=0),
        coverage,
        rows.shape,
        family.whole,
        family.template.predictive(0.0, 1.0).least,
    )


def groups_to_average(parts: Sequence[Part], marginal: Any) -> tuple[str, ...]:
    """Labels of the groups to average over: none, all of them (True), or those that are named."""
    groups = tuple(part.label for part in parts if isinstance(part, GroupPart))
    if marginal is None or marginal is False:
        return ()
    if marginal is True:
        return groups
    named = (marginal,) if isinstance(marginal, str) else tuple(marginal)
    if unknown := [name for name in named if name not in groups]:
        raise ValueError(f"marginal must name groups ({', '.join(groups) or 'there are none'}), got {unknown[0]!r}")
    return named
