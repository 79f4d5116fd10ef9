"""Several engines on one model, side by side."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from latlin.inference.engine import Engine
from latlin.inference.infer import infer, resolve
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior

COLUMNS = ("engine", "log evidence", "kind", "seconds", "steps", "converged", "note")


@dataclass(frozen=True)
class Comparison:
    """A table of posteriors, one row an engine; prints well in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        One an engine, with the keys of `COLUMNS`.
    posteriors : dict
        Short name → Posterior, for the engines that apply.
    """

    rows: list[dict[str, Any]]
    posteriors: dict[str, Posterior] = field(repr=False)

    def to_pandas(self) -> Any:
        """The table as a data frame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: install latlin[cli]") from error
        return pandas.DataFrame(self.rows, columns=list(COLUMNS)).set_index("engine")

    def __getitem__(self, engine: str) -> Posterior:
        return self.posteriors[engine]

    def __repr__(self) -> str:
        table = [list(COLUMNS), *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def compare(
    model: LatentLinearModel,
    engines: Iterable[str | Engine] = ("map", "laplace", "gkl"),
    *,
    verbose: bool = False,
) -> Comparison:
    """Run several engines on one model.

    Parameters
    ----------
    model : LatentLinearModel
    engines : iterable of names or engine objects
        One that does not apply to the model gets a row that says why.
    verbose : bool

    Returns
    -------
    Comparison
    """
    rows, posteriors = [], {}
    for engine in engines:
        name = engine if isinstance(engine, str) else engine.name
        resolved = resolve(engine)
        try:
            posterior = infer(model, resolved, verbose=verbose)
        except ValueError as error:
            rows.append(dict.fromkeys(COLUMNS) | {"engine": name, "note": str(error)})
            continue
        posteriors[name] = posterior
        rows.append(_row(name, posterior))
    return Comparison(rows, posteriors)


def _row(name: str, posterior: Posterior) -> dict[str, Any]:
    values = (
        name,
        posterior.log_evidence,
        posterior.evidence_kind,
        posterior.elapsed,
        posterior.n_iter,
        posterior.converged,
        "" if posterior.converged else posterior.message,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _cells(row: dict[str, Any]) -> list[str]:
    formats = {"log evidence": "{:.4f}", "seconds": "{:.3f}"}
    shown = {name: formats.get(name, "{}").format(value) for name, value in row.items() if _is_shown(value)}
    return [shown.get(name, "–") for name in COLUMNS]


def _is_shown(value: Any) -> bool:
    return value is not None and value == value
