"""`latlin predict`: predictions with intervals for the rows of a new table, in its order."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.cli.model_file import Model
from latlin.datasets.columns import as_text
from latlin.datasets.table import Frame, need_pandas
from latlin.datasets.target import LABELLED


def predict_table(model: Model, frame: Frame, coverage: float, missing: str | None = None, keep: bool = False) -> Frame:
    """One row a row of `frame`; cells are empty where a missing value prevents a prediction.

    Families of labels: the most probable label, its interval of probability where there are two, and the probability of
    each. Families of numbers: the mean, the standard deviation and the central interval of a new observation.
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"interval must lie strictly between 0 and 1, got {coverage}")
    pandas = need_pandas()
    encoded = model.encoding.encode(frame, missing)
    columns = (
        _labels(model, encoded.matrix, coverage) if _has_labels(model) else _numbers(model, encoded.matrix, coverage)
    )
    told = pandas.DataFrame(columns, index=encoded.matrix.index).reindex(frame.index)
    return pandas.concat([frame, told.add_prefix("predicted_")], axis=1) if keep else told


def _has_labels(model: Model) -> bool:
    return model.target.family in LABELLED


def _numbers(model: Model, X: Frame, coverage: float) -> dict[str, Any]:
    ends = model.estimator.predict_interval(X, coverage=coverage)
    mean, sd = model.estimator.predict(X, return_std=True)
    return {model.target.name: mean, "sd": sd, "low": ends[:, 0], "high": ends[:, 1]}


def _labels(model: Model, X: Frame, coverage: float) -> dict[str, Any]:
    estimator = model.estimator
    table = np.asarray(estimator.predict_proba(X), float)
    found: dict[str, Any] = {model.target.name: estimator.classes_[table.argmax(axis=1)]}
    names = [f"P({as_text(label)})" for label in estimator.classes_]
    shares = dict(zip(names, table.T, strict=True))
    if len(names) > 2 or model.target.family == "ordinal":
        return found | shares
    # two classes: how sure the probability itself is
    ends = estimator.predict_interval(X, coverage=coverage)
    return found | shares | {f"{names[1]} low": ends[:, 0], f"{names[1]} high": ends[:, 1]}
