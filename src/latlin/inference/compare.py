"""Several engines on one model, side by side: the ladder of bounds.

Lower bounds come first, in rising order, so that the best stands last among them: local bound ≤ Gaussian KL with a
diagonal ≤ banded or chevron ≤ full covariance, as Challis (2013), §4.4.1 proves for some and hopes for the others.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from latlin.inference.engine import Engine
from latlin.inference.infer import infer, resolve
from latlin.inference.model import Model
from latlin.inference.posterior import Posterior
from latlin.numerics.rng import RandomState, generator

COLUMNS = ("engine", "log evidence", "gap", "kind", "seconds", "steps", "converged", "note")
#: what a diagnosis adds, before the note
CHECKED = ("k̂", "low", "high", "verdict")
#: bounds, then what closes them, then numbers that are none, then nothing
RUNGS = {"lower bound": 0, "exact": 1, "approximation": 2, "none": 3, None: 4}


@dataclass(frozen=True)
class Comparison:
    """A table of posteriors, one row per engine; prints well in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        One per engine, with the keys of `columns`: lower bounds in rising order, then an exact evidence, then
        approximations. `gap` is what a bound lacks, in nat, to the exact evidence or else to the best bound here.
    posteriors : dict
        Label → Posterior, for the engines that apply: the short name, with the options that are not the default.
    columns : tuple of str
        With diagnoses also k̂, the ends of the interval for the log evidence, and the verdict.
    """

    rows: list[dict[str, Any]]
    posteriors: dict[str, Posterior] = field(repr=False)
    columns: tuple[str, ...] = COLUMNS

    def to_pandas(self) -> Any:
        """The table as a data frame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: install latlin[cli]") from error
        return pandas.DataFrame(self.rows, columns=list(self.columns)).set_index("engine")

    def __getitem__(self, engine: str) -> Posterior:
        return self.posteriors[engine]

    def __repr__(self) -> str:
        table = [list(self.columns), *(_cells(row, self.columns) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(self.columns))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row, self.columns)) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def compare(
    model: Model,
    engines: Iterable[str | Engine] = ("map", "laplace", "mean-field", "lvb", "ep", "gkl"),
    *,
    verbose: bool = False,
    diagnose: bool = False,
    random_state: RandomState = None,
) -> Comparison:
    """Run several engines on one model.

    Parameters
    ----------
    model : LatentLinearModel
    engines : iterable of names or engine objects
        One that does not apply to the model gets a row that says why.
    verbose : bool
    diagnose : bool
        Check every posterior by importance sampling (`Posterior.diagnose`) and show k̂, an interval for the log
        evidence and the verdict.
    random_state : int, Generator or RandomState, optional
        For the draws of the diagnoses.

    Returns
    -------
    Comparison
    """
    columns = (*COLUMNS[:-1], *CHECKED, COLUMNS[-1]) if diagnose else COLUMNS
    rng = generator(random_state)
    rows: list[dict[str, Any]] = []
    posteriors: dict[str, Posterior] = {}
    if not isinstance(engines, Iterable):
        raise ValueError(f"engines must be a list of names or engine objects, got {engines!r:.80}")
    listed = [engines] if isinstance(engines, str) else list(engines)
    if not listed:
        raise ValueError("engines must name at least one engine, got none")
    for engine in listed:
        try:
            resolved = resolve(engine)
        except ValueError as error:
            raise ValueError(f"engines: {error}") from error
        label = engine if isinstance(engine, str) else _label(resolved)
        try:
            posterior = infer(model, resolved, verbose=verbose)
        except ValueError as error:
            rows.append(dict.fromkeys(columns) | {"engine": label, "note": str(error)})
            continue
        posteriors[label] = posterior
        rows.append(_row(label, posterior) | (_checks(posterior, rng) if diagnose else {}))
    return Comparison(_ladder(rows), posteriors, columns)


def _label(engine: Engine) -> str:
    """The short name and the options that are not the default."""
    if not is_dataclass(engine):
        return engine.name
    return engine.name + _options(engine)


def _options(value: Any) -> str:
    """The options of a data class that are not the default, in brackets."""
    pairs = [(option, getattr(value, option.name)) for option in fields(value)]
    named = [f"{option.name}={_brief(part)}" for option, part in pairs if _brief(part) != _brief(option.default)]
    return f"({', '.join(named)})" if named else ""


def _brief(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__ + (_options(value) or "()")
    return repr(value) if value is None or isinstance(value, str | int | float) else "…"


def _ladder(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in order of their rung and their evidence, with the gaps of the bounds."""
    bounds = [row["log evidence"] for row in rows if row["kind"] == "lower bound"]
    exact = [row["log evidence"] for row in rows if row["kind"] == "exact"]
    best = max(exact or bounds, default=None)
    for row in rows:
        row["gap"] = best - row["log evidence"] if best is not None and row["kind"] == "lower bound" else None
    return sorted(rows, key=_rung)


def _rung(row: dict[str, Any]) -> tuple[int, float]:
    value = row["log evidence"]
    return RUNGS[row["kind"]], value if _is_shown(value) else 0.0


def _row(name: str, posterior: Posterior) -> dict[str, Any]:
    values = (
        name,
        posterior.log_evidence,
        None,
        posterior.evidence_kind,
        posterior.elapsed,
        posterior.n_iter,
        posterior.converged,
        "" if posterior.converged else posterior.message,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _checks(posterior: Posterior, rng: np.random.Generator) -> dict[str, Any]:
    found = posterior.diagnose(random_state=rng)
    return dict(zip(CHECKED, (found.k_hat, *found.evidence_interval, found.verdict), strict=True))


def _cells(row: dict[str, Any], columns: tuple[str, ...]) -> list[str]:
    four = dict.fromkeys(("log evidence", "gap", "low", "high"), "{:.4f}")
    formats = four | {"seconds": "{:.3f}", "k̂": "{:.2f}"}
    shown = {name: formats.get(name, "{}").format(value) for name, value in row.items() if _is_shown(value)}
    return [shown.get(name, "–") for name in columns]


def _is_shown(value: Any) -> bool:
    return value is not None and value == value
