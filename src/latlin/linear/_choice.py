"""Estimators whose family is an option, given by name or chosen by the evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from sklearn.base import clone

from latlin.linear._exposure import Exposed
from latlin.linear._regression import Regression
from latlin.numerics.alerts import alert
from latlin.potentials.families import Family, named

AUTO = "auto"
#: nats by which a family must beat a simpler one that comes before it
GAIN = 1.0


class Tried(NamedTuple):
    """A candidate's fit, and what it warned of."""

    fitted: ChosenFamily
    warned: list[warnings.WarningMessage]

    @property
    def log_evidence(self) -> float:
        return float(self.fitted.log_evidence_)

    def __str__(self) -> str:
        return f"{self.fitted.family} {self.log_evidence:.2f}"


class ChosenFamily(Regression):
    """Regression by one of several families; "auto" fits some and keeps the one of highest evidence.

    A subclass names its families, those that "auto" compares from the simplest on, and has one constructor argument of
    the same name for every parameter of them.
    """

    #: families by name, and those that "auto" compares
    _families: ClassVar[Mapping[str, Family]] = {}
    _candidates: ClassVar[tuple[str, ...]] = ()
    _extras: tuple[str, ...] = ("family_", "choice_")

    family: str

    @classmethod
    def families(cls) -> tuple[str, ...]:
        """Names of the families."""
        return tuple(cls._families)

    def _family(self) -> Family:
        return named(getattr(self, "family_", self.family), self._families)

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, **{name: getattr(self, name) for name in self._family().parameters}}

    def _fit_chosen(self, fit: Callable[..., Self], X: Any, y: Any, data: dict[str, Any], checkpoint: Any) -> Self:
        """Run `fit` for the family that was named, or choose one."""
        named(self.family, dict.fromkeys([AUTO, *self._families] if self._candidates else self._families))
        if self.family != AUTO:
            self.family_, self.choice_ = self.family, ""
            return fit(X, y, **data, checkpoint=checkpoint)
        if checkpoint is not None:
            raise ValueError("checkpoint is for one family: name it instead of family='auto'")
        return self._fit_best(X, y, data)

    def _fit_best(self, X: Any, y: Any, data: dict[str, Any]) -> Self:
        """Fit every candidate and keep the simplest whose evidence is within a nat of the best."""
        tried: list[Tried] = []
        refused: list[ValueError] = []
        for name in self._candidates:
            if tried and not self._is_worth(name, max(tried, key=lambda each: each.log_evidence).fitted):
                continue
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    tried.append(Tried(clone(self).set_params(family=name).fit(X, y, **data), warned))
                except ValueError as error:
                    refused.append(error)
        if not tried:
            raise refused[0]
        if any(each.fitted.evidence_kind_ == "none" for each in tried):
            raise ValueError("family='auto' compares evidences, and this engine has none: name a family")
        most = max(each.log_evidence for each in tried)
        best = next(each for each in tried if each.log_evidence > most - GAIN)
        options = self.get_params(deep=False)
        self.__dict__.update({name: part for name, part in vars(best.fitted).items() if name not in options})
        self.choice_ = self._reason(tried, best)
        for warning in best.warned:
            alert(str(warning.message), warning.category)
        return self

    def _is_worth(self, name: str, best: Any) -> bool:
        """Whether a candidate may explain what the best of those before it leaves."""
        return True

    def _reason(self, tried: list[Tried], best: Tried) -> str:
        others = sorted((each for each in tried if each is not best), key=lambda each: -each.log_evidence)
        against = f" against {', '.join(map(str, others))}" if others else ""
        return f"family {self.family_} was chosen by its log evidence: {best} ({self.evidence_kind_}){against}"

    def family_name(self) -> str:
        return str(getattr(self, "family_", self.family))

    def _footer(self) -> str:
        return "\n".join(filter(None, [super()._footer(), getattr(self, "choice_", "")]))

    def _title(self) -> str:
        return f"{super()._title()}, family {self.family_}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class ExposedFamily(ChosenFamily, Exposed):
    """Families whose size is e^x, with exposures."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
        *,
        checkpoint: Any = None,
        **table: Any,
    ) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and y (n,).

        Parameters
        ----------
        X : data frame, array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Columns of texts, categories and truth values become numbers. Rows that are not all in memory are fitted
            block by block.
        y : array of shape (n,) or name of a column of X
        sample_weight : array of shape (n,) or name of a column of X, optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,) or name of a column of X, optional
            Added to the linear predictor, a logarithm, with coefficient one.
        exposure : array of shape (n,) or name of a column of X, optional
            Time, area or population of a row, positive: the mean of y is proportional to it.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file, and go on from it if it exists.
        **table
            How columns become numbers: see `BayesianLinearRegression.fit`.
        """
        read = self._read(X, table, y=y, sample_weight=sample_weight, offset=offset, exposure=exposure)
        X, y = read.pop("X"), read.pop("y")
        return self._fit_chosen(self._fit_exposed, X, y, read, checkpoint)
