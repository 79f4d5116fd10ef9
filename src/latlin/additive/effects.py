"""What a fit says of effects: coefficients, levels, marginal means and differences, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

from latlin.inference.posterior import Posterior

COLUMNS = ("mean", "sd", "low", "high", "p_positive")


@dataclass(frozen=True)
class Effects:
    """A table of effects; prints in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, low, high (ends of the central interval), p_positive.
    coverage : float
    title : str
    note : str
        What belongs below the table.
    columns : tuple of str
        Those that are printed.
    """

    rows: list[dict[str, Any]]
    coverage: float
    title: str = ""
    note: str = ""
    columns: tuple[str, ...] = COLUMNS

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> dict[str, Any]:
        for row in self.rows:
            if row["name"] == name:
                return row
        raise KeyError(f"no effect {name!r}; there are {', '.join(row['name'] for row in self.rows[:8])} …")

    @property
    def names(self) -> list[str]:
        return [row["name"] for row in self.rows]

    def column(self, name: str) -> Any:
        """One column as an array: "mean", "sd", "low", "high" or "p_positive"."""
        return np.array([row[name] for row in self.rows])

    def to_frame(self) -> Any:
        """A pandas data frame with one row per effect, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: pip install 'latlin[formula]'") from error
        return pandas.DataFrame(self.rows).set_index("name")

    to_pandas = to_frame

    def _headings(self) -> tuple[str, ...]:
        low, high = 50.0 - 50.0 * self.coverage, 50.0 + 50.0 * self.coverage
        said = {"low": f"{low:g}%", "high": f"{high:g}%", "p_positive": "P(>0)"}
        return tuple(said.get(column, column) for column in self.columns)

    def __repr__(self) -> str:
        width = max([len("effect"), *(len(row["name"]) for row in self.rows)])
        head = "effect".ljust(width) + "".join(f"{title:>11}" for title in self._headings())
        lines = [row["name"].ljust(width) + "".join(f"{row[c]:11.4g}" for c in self.columns) for row in self.rows]
        return "\n".join([part for part in (self.title, head, *lines, self.note) if part])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in ("effect", *self._headings()))
        body = "".join(
            f"<tr><th scope='row'>{escape(row['name'])}</th>"
            + "".join(f"<td>{row[c]:.4g}</td>" for c in self.columns)
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}</caption>"
        note = f"<pre>{escape(self.note)}</pre>" if self.note else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def effects_of(
    posterior: Posterior, rows: sparse.csr_array, names: list[str], coverage: float, title: str = "", note: str = ""
) -> Effects:
    """Linear functions of the coefficients, one row each."""
    at = posterior.project(rows)
    sd = np.sqrt(np.maximum(at.variance, 0.0))
    mean = np.asarray(at.mean)
    low, high, positive = mean.copy(), mean.copy(), np.heaviside(mean, 0.5)
    known = np.flatnonzero(sd > 0.0)
    if len(known):
        ends = np.asarray(at.quantile(np.array([[0.5 - 0.5 * coverage], [0.5 + 0.5 * coverage]])))
        low[known], high[known] = ends[0][known], ends[1][known]
        positive[known] = 1.0 - np.asarray(at.cdf(np.zeros(len(sd))))[known]
    columns = zip(mean, sd, low, high, positive, strict=True)
    table = [{"name": n, **dict(zip(COLUMNS, map(float, c), strict=True))} for n, c in zip(names, columns, strict=True)]
    return Effects(table, coverage, title, note)


def differences_of(rows: sparse.csr_array, names: list[str]) -> tuple[sparse.csr_array, list[str]]:
    """Rows of all pairwise differences, later less earlier.

    >>> differences_of(sparse.csr_array(np.eye(3)), ["a", "b", "c"])[1]
    ['b - a', 'c - a', 'c - b']
    """
    later, earlier = np.tril_indices(len(names), -1)
    pairs = [f"{names[i]} - {names[j]}" for i, j in zip(later, earlier, strict=True)]
    return sparse.csr_array(rows[later] - rows[earlier]), pairs


def checked_share(coverage: float) -> float:
    """The probability that an interval holds."""
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0.0 < float(coverage) < 1.0:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}")
    return float(coverage)
