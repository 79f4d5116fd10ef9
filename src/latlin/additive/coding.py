"""Columns of the linear part: numbers as they are, labels in reference coding, anything else by `formulaic`."""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.expression import CONTRASTS, check_coding, evaluate, is_function, is_name, variables
from latlin.additive.frame import Column, codes_of, column, is_labelled, n_rows, name_of, ordered_levels
from latlin.additive.places import indicator, join_columns, row_products
from latlin.numerics.arrays import check_visible
from latlin.numerics.stored import storable, storable_as

#: missing cells are refused
COMPLETE = {"na_action": "raise"}
#: marks by which formulaic shows a place in colours
COLOURS = re.compile("\\x1b\\[[0-9;]*m|[⧛⧚]")
#: labels that formulaic does not know
LABELS = re.compile(r"\{(.*)\}", re.DOTALL)


class TableCoding(ABC):
    """Columns made of a table."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One name per column."""

    @abstractmethod
    def columns(self, frame: Any) -> sparse.csr_array:
        """The columns of a table, seen or unseen."""

    @property
    def references(self) -> dict[str, str]:
        """Of columns of labels: the label that the others are compared with."""
        return {}


@storable
@dataclass(frozen=True)
class NumericColumn(TableCoding):
    """One column of numbers."""

    source: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.source,)

    def columns(self, frame: Any) -> sparse.csr_array:
        x = np.asarray(evaluate(self.source, frame), float)
        return indicator(np.where(x != 0.0, 0, -1), 1, x)


@storable
@dataclass(frozen=True)
class References(TableCoding):
    """A column of labels: one column of zeros and ones per label but the first, or per label when `every`."""

    source: str
    levels: Column
    every: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        start = 0 if self.every else 1
        mark = "" if self.every else "T."
        return tuple(f"{self.source}[{mark}{level}]" for level in self.levels.tolist()[start:])

    @property
    def references(self) -> dict[str, str]:
        return {} if self.every else {self.source: str(self.levels.tolist()[0])}

    def columns(self, frame: Any) -> sparse.csr_array:
        codes = codes_of(column(frame, self.source), self.levels, f"column {self.source!r}")
        if np.any(codes < 0):
            first = column(frame, self.source)[codes < 0][0]
            raise ValueError(
                f"column {self.source!r} holds the label {str(first)!r}, which has no coefficient; "
                f"(1 | {self.source}) would predict unseen labels"
            )
        table = indicator(codes, len(self.levels))
        return table if self.every else sparse.csr_array(table[:, 1:])


@storable
@dataclass(frozen=True)
class Product(TableCoding):
    """Products of the columns of two codings: an interaction beside its main effects."""

    first: TableCoding
    second: TableCoding

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{a}:{b}" for a in self.first.names for b in self.second.names)

    def columns(self, frame: Any) -> sparse.csr_array:
        return row_products(self.first.columns(frame), self.second.columns(frame))


@storable
@dataclass(frozen=True)
class StackedCoding(TableCoding):
    """Several codings side by side, after a column of ones where there is an intercept."""

    parts: tuple[TableCoding, ...]
    intercept: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (*(("Intercept",) if self.intercept else ()), *(name for part in self.parts for name in part.names))

    @property
    def references(self) -> dict[str, str]:
        return {name: label for part in self.parts for name, label in part.references.items()}

    def columns(self, frame: Any) -> sparse.csr_array:
        rows = n_rows(frame)
        ones = [indicator(np.zeros(rows, np.int64), 1)] if self.intercept else []
        blocks = [*ones, *(part.columns(frame) for part in self.parts)]
        return join_columns(blocks) if blocks else sparse.csr_array((rows, 0))


@dataclass(frozen=True)
class Wilkinson(TableCoding):
    """Columns of a formula's right-hand side, coded by formulaic; what its transformations learnt is kept."""

    formula: str
    sources: tuple[str, ...]
    found: tuple[str, ...]
    spec: Any

    @property
    def names(self) -> tuple[str, ...]:
        return self.found

    def columns(self, frame: Any) -> sparse.csr_array:
        made = _evaluated(self.formula, lambda: self.spec.get_model_matrix(_table(frame, self.sources), **COMPLETE))
        if made.shape[1] != len(self.found):
            raise ValueError(f"{self.formula!r} has {len(self.found)} columns in training, but {made.shape[1]} here")
        return sparse.csr_array(made)


def _keep(coding: Wilkinson) -> dict[str, Any]:
    """What makes the coding again: labels of its factors, and what its transformations learnt."""
    levels = {
        str(factor): list(state["categories"])
        for factor, (_, state) in coding.spec.encoder_state.items()
        if "categories" in state
    }
    learnt = {str(name): _plain(state) for name, state in coding.spec.transform_state.items()}
    return {"formula": coding.formula, "sources": coding.sources, "levels": levels, "learnt": learnt}


def _made_again(formula: str, sources: tuple[str, ...], levels: Any, learnt: Any) -> Wilkinson:
    """A coding like the one that was kept, from a table of its labels and of harmless numbers."""
    if tuple(sources) != check_pieces(formula):
        raise ValueError(f"the formula part {formula!r} does not read the columns {list(sources)}")
    size = max([2, *(len(labels) for labels in levels.values())])
    table = {name: np.linspace(0.25, 0.75, size) for name in check_pieces(formula)}
    for factor, labels in levels.items():
        table |= {name: np.resize(np.array(labels), size) for name in check_pieces(factor)}
    coding = learn_wilkinson(formula, table)
    spec = coding.spec
    spec.transform_state.clear()
    spec.transform_state.update(learnt)
    return Wilkinson(formula, tuple(sources), coding.found, spec)


def _plain(state: Any) -> Any:
    """A state without objects of other packages."""
    if isinstance(state, Mapping):
        return {str(key): _plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_plain(value) for value in state]
    return np.asarray(state) if isinstance(state, np.ndarray) else state


storable_as(Wilkinson, _keep, _made_again)


def coding_of(pieces: tuple[str, ...], frame: Any, intercept: bool) -> TableCoding:
    """The coding of several pieces: column names, expressions, or what formulaic understands."""
    expanded = _expanded(pieces)
    parts = [_simple(piece, frame, expanded if intercept else ()) for piece in expanded]
    if all(part is not None for part in parts):
        # without an intercept the first column of labels has a coefficient per label
        first = next((k for k, part in enumerate(parts) if isinstance(part, References)), None)
        whole = [
            References(part.source, part.levels, True)
            if isinstance(part, References) and k == first and not intercept
            else part
            for k, part in enumerate(parts)
        ]
        return StackedCoding(tuple(part for part in whole if part is not None), intercept)
    return learn_wilkinson(" + ".join(("1" if intercept else "0", *pieces)), frame)


def learn_wilkinson(formula: str, frame: Any) -> Wilkinson:
    """The coding of a right-hand side by formulaic, learnt from a table."""
    sources = check_pieces(formula)
    try:
        from formulaic import Formula
    except ImportError as error:
        raise ImportError(
            f"the formula part {formula!r} needs the package formulaic: pip install 'latlin[formula]'"
        ) from error
    made = _evaluated(
        formula, lambda: Formula(formula).get_model_matrix(_table(frame, sources), output="sparse", **COMPLETE)
    )
    if not hasattr(made, "shape"):
        raise ValueError(f"the formula part {formula!r} must be one sum of terms: a group is (1 | g)")
    return Wilkinson(formula, sources, tuple(made.model_spec.column_names), made.model_spec)


def _evaluated(formula: str, evaluate: Callable[[], Any]) -> Any:
    """The columns of a formula on a table; the errors of formulaic in one sentence."""
    from formulaic.errors import DataMismatchWarning

    try:
        with warnings.catch_warnings():
            # labels without a coefficient, which would become rows of zeros
            warnings.simplefilter("error", DataMismatchWarning)
            return evaluate()
    except DataMismatchWarning as error:
        strange = LABELS.search(str(error))
        raise ValueError(
            f"the formula part {formula!r} meets labels that have no coefficient: {strange[1] if strange else error}"
        ) from error
    except Exception as error:
        words = " ".join(COLOURS.sub("", str(error)).split())
        raise ValueError(f"the formula part {formula!r} cannot be evaluated: {words}") from error


def check_pieces(formula: str) -> tuple[str, ...]:
    """The columns that a formula reads; anything but arithmetic and known functions in it is refused."""
    if any(mark in formula for mark in ("{", "}", "`", "@", "~")):
        raise ValueError(f"formulas hold column names, arithmetic and functions only, got {formula!r}")
    # the operators of formulas are operators of arithmetic too, up to these two
    arithmetic = formula.replace("^", "**").replace(":", "*").replace("%in%", "*")
    check_coding(arithmetic)
    return tuple(name for name in variables(arithmetic) if name not in CONTRASTS)


def _expanded(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """`a * b` of two columns as a, b and a:b, interactions last, nothing twice."""
    flat = []
    for piece in pieces:
        names = [name.strip() for name in piece.split("*")]
        both = len(names) == 2 and all(map(is_name, names))
        flat += [*names, ":".join(names)] if both else [piece]
    return tuple(dict.fromkeys(sorted(flat, key=lambda piece: ":" in piece)))


def _simple(piece: str, frame: Any, beside: tuple[str, ...]) -> TableCoding | None:
    """The coding of a name, a function, or an interaction whose main effects are beside it; None for anything else."""
    names = [name.strip() for name in piece.split(":")]
    if len(names) == 2 and all(is_name(name) and name in beside for name in names):
        first, second = (_simple(name, frame, ()) for name in names)
        return None if first is None or second is None else Product(first, second)
    if is_function(piece):
        return NumericColumn(piece)
    if not is_name(piece):
        return None
    check_visible(f"column {piece!r}", column(frame, piece))
    if is_labelled(frame, piece):
        return References(piece, ordered_levels(frame, piece))
    return NumericColumn(piece)


def _table(frame: Any, sources: tuple[str, ...]) -> Any:
    """A pandas frame of some columns, without missing values."""
    pandas = _pandas()
    if isinstance(frame, pandas.DataFrame):
        # with the categories of its columns
        for name in sources:
            check_visible(f"column {name!r}", column(frame, name))
        table = frame[[name_of(frame, name) for name in sources]].reset_index(drop=True).set_axis([*sources], axis=1)
        # categories that no row has would get coefficients of their own
        labelled = [name for name in sources if isinstance(table[name].dtype, pandas.CategoricalDtype)]
        table = table.assign(**{name: table[name].cat.remove_unused_categories() for name in labelled})
    else:
        table = pandas.DataFrame({name: column(frame, name) for name in sources}, index=range(n_rows(frame)))
    gaps = table.isna().sum()
    if gaps.any():
        name = gaps.idxmax()
        raise ValueError(f"column {name!r} has {int(gaps[name])} missing values; drop or fill these rows")
    return table


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("formulas need pandas: pip install 'latlin[formula]'") from error
    return pandas
