"""The table of hyperparameters that a fit leaves: what each is, how sure, under which prior, and whether at an end."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np

from latlin.hyper.marginals import Marginal
from latlin.numerics.stored import storable

Manner = Literal["integrated", "maximised", "fixed"]
#: probabilities of the quantiles
LEVELS = (0.05, 0.5, 0.95)
COLUMNS = ("name", "mean", "sd", "5%", "50%", "95%", "at_bound", "prior")


@storable
@dataclass(frozen=True)
class HyperparameterTable:
    """Hyperparameters of a fit; prints as a table in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, quantiles 5%, 50% and 95%, at_bound ("", "lower" or "upper"), prior (as text). When maximised,
        the mean is the penalised optimum, and sd and quantiles are those of a normal in its coordinate, where known.
    manner : {"integrated", "maximised", "fixed"}
    marginals : dict
        Name → Marginal with a density to plot, where there is one.
    note : str
        How the numbers came about.
    """

    rows: list[dict[str, Any]]
    manner: Manner
    marginals: dict[str, Marginal] = field(default_factory=dict, repr=False)
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row["name"] for row in self.rows)

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Names of those at an end of their search."""
        return tuple(row["name"] for row in self.rows if row["at_bound"])

    def __getitem__(self, name: str) -> dict[str, Any]:
        for row in self.rows:
            if row["name"] == name:
                return row
        raise KeyError(f"no hyperparameter {name!r}; there are {', '.join(self.names)}")

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """A data frame with one row per hyperparameter, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: install latlin[cli]") from error
        return pandas.DataFrame(self.rows, columns=list(COLUMNS)).set_index("name")

    def _cells(self) -> list[list[str]]:
        return [[_cell(row[column]) for column in COLUMNS] for row in self.rows]

    def __repr__(self) -> str:
        table = [list(COLUMNS), *self._cells()]
        widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        title = f"hyperparameters, {self.manner}" + (f": {self.note}" if self.note else "")
        return "\n".join([title, *lines])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in self._cells())
        caption = f"<caption>hyperparameters, {escape(self.manner)}<br>{escape(self.note)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def row_of(name: str, mean: float, marginal: Marginal | None, side: int, prior: str) -> dict[str, Any]:
    """A row; without a marginal the spread is not known."""
    at_bound = "" if not side else "lower" if side < 0 else "upper"
    levels = [np.nan] * len(LEVELS) if marginal is None else marginal.quantile(np.array(LEVELS)).tolist()
    spread = np.nan if marginal is None else marginal.sd
    quantiles = dict(zip(("5%", "50%", "95%"), levels, strict=True))
    return {"name": name, "mean": float(mean), "sd": float(spread), **quantiles, "at_bound": at_bound, "prior": prior}


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
