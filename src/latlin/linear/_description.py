"""What a fitted linear estimator says of itself: the table of coefficients, joint statements, draws for ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latlin.inference.posterior import Posterior
from latlin.linear._arviz import inference_data
from latlin.linear._design import Design
from latlin.linear._evidence import Fit
from latlin.linear._predict import levels
from latlin.linear._summary import Joint, Summary, coefficient_rows, joint_of, learnt_lines
from latlin.linear._tables import factor_words
from latlin.numerics.rng import RandomState

#: unknowns whose names are kept with a posterior
MOST_NAMES = 10_000


class Description:
    """Answers of an estimator that keeps its design and its fits."""

    #: the family as reports name it
    _name = ""
    _design: Design
    _fits: list[Fit]
    n_features_in_: int
    converged_: bool
    log_evidence_: Any
    evidence_kind_: str
    hyperparameters_: Any

    def _generator(self, random_state: RandomState) -> np.random.Generator:
        raise NotImplementedError

    def summary(self, coverage: float = 0.9) -> Summary:
        """Mean, standard deviation, central interval and P(> 0) of every coefficient, by feature name."""
        check_is_fitted(self, "posterior_")
        levels("coverage", coverage)
        rows = []
        for label, fit in zip(self._response_names(), self._fits, strict=True):
            part = coefficient_rows(fit.posterior, self._design, self._feature_names(), coverage)
            rows += [{**row, "name": f"{label}{row['name']}"} for row in part]
        return Summary(rows, coverage, self._title(), self._footer())

    def family_name(self) -> str:
        """The family as reports and the command line name it."""
        return self._name

    def joint(self, names: Sequence[str], *, equal: bool = False, response: int = 0) -> Joint:
        """What the posterior says of several coefficients together, for example all levels of a factor.

        Parameters
        ----------
        names : sequence of str
            Features.
        equal : bool
            Ask whether they are all equal instead of all zero: for levels that have one indicator each.
        response : int
            Of several classes, which.

        Examples
        --------
        >>> import pandas
        >>> from latlin.linear import BayesianLinearRegression
        >>> X = pandas.DataFrame({"a": [0.0, 1, 0, 0, 1, 0], "b": [0.0, 0, 1, 0, 0, 1]})
        >>> BayesianLinearRegression(noise_scale=0.1).fit(X, [0.0, 1.0, 2.0, 0.1, 1.1, 2.1]).joint(["a", "b"]).df
        2
        """
        check_is_fitted(self, "posterior_")
        return joint_of(self._fits[response].posterior, self._feature_names(), names, equal)

    def _response_names(self) -> list[str]:
        return [""]

    def _feature_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)

    def _coordinate_names(self, design: Design) -> tuple[str, ...] | None:
        """Names of the unknowns, for messages; none where they are too many to be read."""
        if design.dim > MOST_NAMES:
            return None
        return tuple([*map(str, self._feature_names()), "intercept"][: design.dim])

    def _title(self) -> str:
        posterior: Posterior = self._fits[0].posterior
        return f"{type(self).__name__}, engine {posterior.engine}, {'' if self.converged_ else 'NOT '}converged"

    def _footer(self) -> str:
        total = float(np.sum(self.log_evidence_))
        said = [] if self.evidence_kind_ == "none" else [f"log evidence {total:.4f} ({self.evidence_kind_})"]
        learnt = {n: v for n, v in self._fits[0].values.items() if np.ndim(v) == 0} if len(self._fits) == 1 else {}
        numbers = ", ".join([*said, *(f"{name} {value:.4g}" for name, value in learnt.items())])
        table = self.hyperparameters_
        lines = [] if isinstance(table, list) or table.manner == "fixed" else learnt_lines(table)
        is_one = len(self._fits) == 1 and self._design.dim <= MOST_NAMES and self.evidence_kind_ != "none"
        levels_ = factor_words(self, getattr(self, "encoding_", None)) if is_one else []
        return "\n".join(filter(None, [numbers, *lines, *levels_, str(getattr(self, "checks_", ""))]))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData`; a list of them, one per class, for several classes.

        Groups: posterior ("coef", "intercept"), sample_stats ("lp", the log joint, and "log_q", the log density of the
        approximation: their difference gives importance weights), log_likelihood and observed_data ("y"). Needs
        ArviZ and the training data, so a model that was fitted here. ArviZ 1 makes a `DataTree` of them.
        """
        check_is_fitted(self, "posterior_")
        rng = self._generator(random_state)
        found = []
        for fit in self._fits:
            w = fit.posterior.sample(n_samples, rng)
            found.append(inference_data(fit.posterior, self._design, self._feature_names(), w))
        return found[0] if len(found) == 1 else found
