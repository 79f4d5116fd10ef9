"""Which approximation serves a Gaussian process: by name, or "auto" by rows, columns, kernel and likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.utils.validation import check_is_fitted

from latlin.gp.approximation import Approximation
from latlin.gp.dense import Dense
from latlin.gp.grid import Grid
from latlin.gp.inducing import Inducing
from latlin.gp.setting import Setting
from latlin.gp.state_space import StateSpace
from latlin.gp.vecchia import Vecchia
from latlin.numerics.options import is_name, resolve_choice

#: short name → approximation with its default options
APPROXIMATIONS: dict[str, type[Any]] = {kind.name: kind for kind in (Dense, Grid, Inducing, StateSpace, Vecchia)}
#: rows up to which "auto" is exact: kernel matrices of 32 MB
EXACT_ROWS = 2000
#: option of an estimator → the approximation whose size it is
SIZES = {"n_inducing": Inducing.name, "n_neighbours": Vecchia.name}


class Choice(NamedTuple):
    """An approximation, and why "auto" took it; empty where the user named it."""

    approximation: Approximation
    reason: str = ""


class Approximated:
    """The part of an estimator that says which approximation is wanted, and of what size."""

    if TYPE_CHECKING:
        approximation: str | Approximation
        n_inducing: Any
        n_neighbours: Any
        _all_processes: list[Any]

    def _choose(self, setting: Setting, n_rows: int, n_columns: int, in_blocks: bool) -> Choice:
        sizes = {name: getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        return choose(self.approximation, setting, n_rows, n_columns, in_blocks, sizes)

    @property
    def inducing_inputs_(self) -> Any:
        """Inducing inputs, shape (M, n_features); a list with one array per class for classes against the rest."""
        check_is_fitted(self)
        bases = [getattr(process.found.latent, "basis", None) for process in self._all_processes]
        found = [basis.Z for basis in bases if basis is not None]
        if not found:
            raise AttributeError("inducing_inputs_ is there for approximation 'inducing' only")
        return found[0] if len(found) == 1 else found


def choose(
    wanted: str | Approximation,
    setting: Setting,
    n_rows: int,
    n_columns: int,
    in_blocks: bool = False,
    sizes: Mapping[str, Any] | None = None,
) -> Choice:
    """The approximation that was asked for, of the `sizes` given, or the one that suits the data, with the reason."""
    if sizes:
        return _of_size(wanted, sizes, setting, n_rows, n_columns)
    if is_name(wanted, "auto"):
        if in_blocks:
            return Choice(Inducing(), "approximation 'inducing', as the rows are in blocks")
        return _suited(setting, n_rows, n_columns)
    approximation = _resolve(wanted)
    refusal = approximation.refusal(setting, n_rows, n_columns)
    if refusal:
        raise ValueError(f"approximation {approximation.name!r} cannot serve here: {refusal}")
    return Choice(approximation)


def _of_size(
    wanted: str | Approximation, sizes: Mapping[str, Any], setting: Setting, n_rows: int, n_columns: int
) -> Choice:
    """An approximation by name with a size; "auto" takes the one whose size it is."""
    if len(sizes) > 1:
        raise ValueError(f"{' and '.join(sizes)} are sizes of different approximations: give one of them")
    ((option, size),) = sizes.items()
    name = SIZES[option]
    if not isinstance(wanted, str):
        raise ValueError(f"{option} is for an approximation by its name: give it to {type(wanted).__name__} instead")
    if wanted not in ("auto", name):
        raise ValueError(f"{option} is for approximation {name!r}, got approximation={wanted!r:.80}")
    found = choose(replace(APPROXIMATIONS[name](), **{option: size}), setting, n_rows, n_columns)
    return found._replace(reason=f"approximation {name!r}, as {option} is given") if wanted == "auto" else found


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
    known = {"auto": None, **APPROXIMATIONS}
    found = resolve_choice("approximation", wanted, known, "an object of latlin.gp", _prepares)
    approximation: Approximation = found() if isinstance(found, type) else found
    return approximation


def _prepares(approximation: Any) -> bool:
    return callable(getattr(approximation, "prepare", None))
