"""Which approximation serves a Gaussian process: by name, or "auto" by rows, columns, kernel and likelihood."""

from __future__ import annotations

from typing import Any, NamedTuple

from latlin.gp.approximation import Approximation
from latlin.gp.dense import Dense
from latlin.gp.grid import Grid
from latlin.gp.inducing import Inducing
from latlin.gp.setting import Setting
from latlin.gp.state_space import StateSpace
from latlin.gp.vecchia import Vecchia

#: short name → approximation with its default options
APPROXIMATIONS: dict[str, type[Any]] = {kind.name: kind for kind in (Dense, Grid, Inducing, StateSpace, Vecchia)}
#: rows up to which "auto" is exact: kernel matrices of 32 MB
EXACT_ROWS = 2000


class Choice(NamedTuple):
    """An approximation, and why "auto" took it; empty where the user named it."""

    approximation: Approximation
    reason: str = ""


def choose(
    wanted: str | Approximation, setting: Setting, n_rows: int, n_columns: int, in_blocks: bool = False
) -> Choice:
    """The approximation that was asked for, or the one that suits the data, with the reason."""
    if isinstance(wanted, str) and wanted == "auto":
        if in_blocks:
            return Choice(Inducing(), "approximation 'inducing', as the rows are in blocks")
        return _suited(setting, n_rows, n_columns)
    approximation = _resolve(wanted)
    refusal = approximation.refusal(setting, n_rows, n_columns)
    if refusal:
        raise ValueError(f"approximation {approximation.name!r} cannot serve here: {refusal}")
    return Choice(approximation)


def _suited(setting: Setting, n_rows: int, n_columns: int) -> Choice:
    """Exact while kernel matrices are small; then what is exact for the kernel, and what has a bound."""
    if n_rows <= EXACT_ROWS:
        return Choice(Dense(), f"approximation 'exact', as {n_rows} rows are not more than {EXACT_ROWS}")
    many = f"{n_rows} rows are more than {EXACT_ROWS}"
    for name, why in (
        ("state-space", "and this kernel on a line has an exact state space"),
        ("inducing", "and the evidence of inducing points is a lower bound of the exact one"),
    ):
        kind = APPROXIMATIONS.get(name)
        if kind is not None and not kind().refusal(setting, n_rows, n_columns):
            return Choice(kind(), f"approximation {name!r}, as {many} {why}")
    return Choice(Dense())


def _resolve(wanted: Any) -> Approximation:
    if isinstance(wanted, str):
        if wanted not in APPROXIMATIONS:
            known = ", ".join(map(repr, ["auto", *APPROXIMATIONS]))
            raise ValueError(f"approximation must be one of {known} or an object of latlin.gp, got {wanted!r}")
        approximation: Approximation = APPROXIMATIONS[wanted]()
        return approximation
    if isinstance(wanted, type) or not callable(getattr(wanted, "prepare", None)):
        raise ValueError(f"approximation must be a name or an object of latlin.gp, got {wanted!r:.80}")
    found: Approximation = wanted
    return found
