"""`latlin predict`: predictions with intervals for the rows of new tables, in their order, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from latlin.cli.models import FittedModel, check_interval
from latlin.cli.options import PredictionOptions
from latlin.cli.prepare import log_exposure
from latlin.datasets.columns import write_cell
from latlin.datasets.table import FilePart, Frame, need_pandas, read_parts
from latlin.datasets.target import BESIDE, LABELLED, kind_of


def predict_files(
    model: FittedModel, paths: Sequence[Path], how: PredictionOptions, add: Callable[[Frame], None]
) -> int:
    """Hand the predictions for the rows of all files to `add`, a part at a time; how many there were."""
    check_interval(how.coverage)
    count = 0
    for part in (part for path in paths for part in read_parts(path, reading=how.reading)):
        with nullcontext() if part.whole and len(paths) == 1 else _naming_part(part):
            found = predict_table(model, part.rows, how)
            add(found)
        count += len(found)
    if not count:
        raise ValueError(f"{paths[0]} has column names but no rows" if len(paths) == 1 else "the files have no rows")
    return count


@contextmanager
def _naming_part(part: FilePart) -> Iterator[None]:
    """What is wrong with some rows, and where they are."""
    try:
        yield
    except ValueError as error:
        where = f"{part.path}" if part.whole else f"the part of {part.path} that begins with row {part.first + 1}"
        raise ValueError(f"in {where}, {error}") from error


def predict_table(model: FittedModel, frame: Frame, how: PredictionOptions) -> Frame:
    """One row per row of `frame`; cells are empty where a missing value prevents a prediction.

    Families of labels: the most probable label, its interval of probability where there are two, and the probability of
    each. Families of numbers: the mean, the standard deviation and the central interval of a new observation; of a
    quantile its own standard deviation and interval.
    """
    pandas, frame = need_pandas(), frame.reset_index(drop=True)
    X = model.encoding.encode(frame, how.missing).matrix
    # where no row is complete, a made-up one says what the columns are
    rows = X if len(X) else pandas.DataFrame(0.0, index=[0], columns=X.columns)
    if model.target.family in LABELLED:
        columns = _labels(model, rows, how.coverage)
    else:
        columns = _numbers(model, rows, how.coverage, _exposures_and_trials(model, frame, X))
    found = pandas.DataFrame(columns, index=rows.index).loc[X.index].reindex(frame.index)
    if found.iloc[:, 0].dtype.kind in "if" and model.target.family in LABELLED:
        found = found.astype({model.target.name: "Int64"})
    return _append_columns(frame, found.add_prefix("predicted_")) if how.keep else found


def _append_columns(frame: Frame, found: Frame) -> Frame:
    taken = [name for name in found.columns if name in frame.columns]
    if taken:
        raise ValueError(f"the table has a column {taken[0]!r} already: rename it, or leave out --keep")
    return need_pandas().concat([frame, found], axis=1)


def _exposures_and_trials(model: FittedModel, frame: Frame, X: Frame) -> dict[str, Any]:
    """Exposures, and trials where the table has them: without trials the answer is a chance."""
    target, rows = model.target, frame.loc[X.index]
    if not len(rows):
        return {}
    found: dict[str, Any] = {}
    if target.exposure:
        found["offset"] = log_exposure(target, rows)
    if target.beside in frame.columns and BESIDE.get(kind_of(target.family)) == "trials":
        found["trials"] = target.numbers(rows, target.beside)
    return found


def _numbers(model: FittedModel, X: Frame, coverage: float, more: dict[str, Any]) -> dict[str, Any]:
    if model.target.family == "quantile":
        mean, sd = model.estimator.predict_latent(X, return_std=True)
        ends = model.estimator.quantile_interval(X, coverage)
        return {model.target.name: mean, "sd": sd, "low": ends[:, 0], "high": ends[:, 1]}
    ends = model.estimator.predict_interval(X, coverage=coverage, **more)
    mean, sd = model.estimator.predict(X, return_std=True, **more)
    return {model.target.name: mean, "sd": sd, "low": ends[:, 0], "high": ends[:, 1]}


def _labels(model: FittedModel, X: Frame, coverage: float) -> dict[str, Any]:
    estimator = model.estimator
    table = np.asarray(estimator.predict_proba(X), float)
    found: dict[str, Any] = {model.target.name: estimator.classes_[table.argmax(axis=1)]}
    names = [f"P({write_cell(label)})" for label in estimator.classes_]
    shares = dict(zip(names, table.T, strict=True))
    if len(names) > 2 or model.target.family == "ordinal":
        return found | shares
    # two classes: how sure the probability itself is
    ends = np.asarray(estimator.predict_interval(X, coverage=coverage))
    ends = ends[:, 1] if ends.ndim == 3 else ends
    return found | shares | {f"{names[1]} low": ends[:, 0], f"{names[1]} high": ends[:, 1]}
