"""Marginal means: the average of the linear part over the rows of a table with one column set to a value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.additive.fixed import FixedPart
from latlin.additive.frame import column, has_column, is_category, levels_of, n_rows, numbers
from latlin.additive.term import Part

#: probabilities of the quantiles at which a column of numbers is set
SPOTS = (0.05, 0.25, 0.5, 0.75, 0.95)


def marginal_rows(name: str, frame: Any, parts: tuple[Part, ...]) -> tuple[sparse.csr_array, list[str]] | None:
    """Rows over the coefficients of the first part, one per value of the column; None if it does not depend on it."""
    fixed = parts[0]
    if not isinstance(fixed, FixedPart) or not has_column(frame, name):
        return None
    values = column(frame, name)
    spots = levels_of(values, f"column {name!r}") if _labelled(values) else np.quantile(numbers(values, name), SPOTS)
    rows, names = [], []
    for spot in np.unique(spots):
        table = _Changed(frame, name, np.full(n_rows(frame), spot))
        rows.append(np.asarray(fixed.rows(table, {}).design.mean(axis=0)).ravel())
        names.append(f"{name}[{spot:.4g}]" if isinstance(spot, float) else f"{name}[{spot}]")
    found = np.array(rows)
    if len(found) > 1 and not np.any(np.ptp(found, axis=0)):
        return None
    return sparse.csr_array(found), names


def _labelled(values: NDArray[Any]) -> bool:
    """Labels, or numbers with so few values that they may be labels."""
    return is_category(values) or (values.dtype.kind in "iu" and len(np.unique(values)) <= 12)


class _Changed:
    """A table with one column in place of its own."""

    def __init__(self, frame: Any, name: str, values: NDArray[Any]) -> None:
        self._frame, self._name, self._values = frame, name, values
        self.columns = list(frame.columns) if hasattr(frame, "columns") else list(frame)

    def __getitem__(self, name: str) -> Any:
        return self._values if name == self._name else self._frame[name]
