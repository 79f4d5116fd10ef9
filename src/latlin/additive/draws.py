"""Draws of the posterior of an additive model: coefficients of all terms together with their hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latlin.additive.problem import spans_of
from latlin.diagnostics.inference_data import inference_data
from latlin.numerics.arrays import Array
from latlin.numerics.options import whole
from latlin.numerics.rng import RandomState, generator


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
        return np.asarray(self.posterior_.sample(whole("n_samples", n_samples, 1), rng))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`), in the units of the table.

        The group posterior has "coefficients", one variable per term with the names of its levels or places, and one
        per hyperparameter; they belong together draw by draw. A model that was fitted here, to a table in memory, also
        has log_likelihood and observed_data ("y"). Needs ArviZ.
        """
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        count = whole("n_samples", n_samples, 1)
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


def _name(label: str) -> str:
    """A term's name among the variables."""
    return "coefficients" if label == "fixed" else label
