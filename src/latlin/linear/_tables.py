"""Data frames as they come: texts, categories and truth values become numbers as the command line encodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from latlin.datasets.encoding import Encoding


def as_pandas(X: Any) -> Any:
    """Tables of polars or Arrow as pandas frames; everything else as it is."""
    is_foreign = type(X).__module__.partition(".")[0] in ("polars", "pyarrow") and hasattr(X, "to_pandas")
    return X.to_pandas() if is_foreign else X


def needs_encoding(X: Any) -> bool:
    """Whether X is a data frame with a column that is not of plain numbers."""
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        return False
    from latlin.datasets.columns import holds_numbers  # arrays do without it

    return not all(map(holds_numbers, set(X.dtypes))) and not _is_arraylike(X)


def _is_arraylike(X: Any) -> bool:
    """Columns without names of their own are left to the checks of arrays."""
    return not all(isinstance(name, str) for name in X.columns)


def learn(X: Any) -> Encoding:
    """How the columns of a data frame become numbers: levels are compared with the first of them."""
    from latlin.datasets.encoding import learn_encoding  # arrays do without it

    return learn_encoding(X, None)


def encoded(X: Any, encoding: Encoding | None) -> Any:
    """A data frame as it came as numbers; arrays, and frames that hold the encoded columns already, as they are."""
    if encoding is None or not hasattr(X, "columns") or not hasattr(X, "iloc"):
        return X
    names = set(map(str, X.columns))
    if names.issuperset(encoding.names) and not names.issuperset(column.name for column in encoding.columns):
        return X
    return encoding.encode(X).matrix


def factor_words(model: Any, encoding: Encoding | None) -> list[str]:
    """What the posterior says of every column of levels as a whole."""
    said = []
    for name, part in ({} if encoding is None else encoding.factors).items():
        joint = model.joint(part["features"])
        shown = f"{joint.probability:.2g}" if np.isfinite(joint.probability) else "unknown"
        said.append(f"{name}, compared with {part['baseline']}: joint p = {shown} ({joint.df} contrasts)")
    return said
