"""What interactions say in plain words: the slope of each level with its interval, and how much slopes differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.effects import effects_of
from latlin.additive.family import family_of, link_of
from latlin.report.markup import number

#: the name of the coefficient of a level: column[T.level], C(column)[T.level]
LEVEL = re.compile(r"^(?:C\()?(?P<column>[^\[\]:()]+)\)?\[(?:T\.)?(?P<level>.+)\]$")
#: a colon between the factors of a product, not one within the name of a level
TIMES = re.compile(r":(?![^\[]*\])")
#: levels whose slopes are said one by one, and coefficients of an interaction that are listed
FEW, LISTED = 4, 6
#: a column whose rows span less than this, and at least one unit, changes by one unit in a sentence
WIDE = 200.0

Row = dict[str, Any]


def factors_of(name: str) -> list[str]:
    """The factors of the name of a coefficient.

    >>> factors_of("x:time[T.10:30]")
    ['x', 'time[T.10:30]']
    """
    return TIMES.split(name)


def readable(name: str) -> str:
    """The name of a coefficient for a sentence.

    Examples
    --------
    >>> readable("variety[T.Brio]"), readable("x:C(year)[T.2020]")
    ('variety Brio', 'x:year 2020')
    """
    parts = [LEVEL.match(part) for part in factors_of(name)]
    pairs = zip(parts, factors_of(name), strict=True)
    return ":".join(f"{m['column']} {m['level']}" if m else part for m, part in pairs)


def stem(name: str) -> str:
    """The column of a level, or the name itself."""
    found = LEVEL.match(name)
    return found["column"].strip() if found else name


def step_of(model: Any, name: str, frame: Any) -> float:
    """A change of a column that the rows show: one unit, or a power of ten where the rows span much less or more."""
    try:
        values = np.asarray((model._frame if frame is None else frame)[name], float)
    except (KeyError, TypeError, ValueError):
        return 1.0  # an expression, or no rows here
    seen = values[np.isfinite(values)]
    span = float(np.ptp(seen)) if seen.size else 1.0
    return 1.0 if span == 0.0 or 1.0 <= span < WIDE else float(10.0 ** np.floor(np.log10(span / 2.0)))


def is_clear(row: Row) -> bool:
    """Whether zero lies outside the interval."""
    return bool(row["low"] > 0.0 or row["high"] < 0.0)


def reference_of(model: Any, column: str, levels: Sequence[str], frame: Any = None) -> str:
    """The level of a column that those with coefficients are compared with; empty where that is not known."""
    if known := model.references_.get(column):
        return str(known)
    try:
        names = model.effects(column, frame=frame).names
    except ValueError:
        return ""
    others = [found["level"] for found in map(LEVEL.match, names) if found and found["level"] not in levels]
    return others[0] if len(others) == 1 else ""


def interaction_words(model: Any, rows: Sequence[Row], what: str, frame: Any = None) -> list[str]:
    """A sentence per interaction, with its numbers: what the response does at each level of the other column.

    Parameters
    ----------
    model : AdditiveModel
    rows : list of dict
        Its coefficients, without the intercept.
    what : str
        What they act on, in words.
    frame : table, optional
        The rows it was fitted to.
    """
    crossed: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if len(parts := factors_of(row["name"])) > 1:
            crossed.setdefault(tuple(map(stem, parts)), []).append(row)
    says = _Sentences(model, {row["name"] for row in rows}, what, frame)
    return [says.of(columns, lines, [key for key in crossed if key != columns]) for columns, lines in crossed.items()]


class _Sentences:
    """Sentences on the interactions of one model."""

    def __init__(self, model: Any, names: set[str], what: str, frame: Any) -> None:
        self.model, self.names, self.frame = model, names, frame
        family = family_of(model.family)
        is_odds = family.link == "share" and link_of(family.template) == "logit"
        self.factor = family.link == "log" or is_odds
        self.what = what.replace("the probability of", "the odds of") if is_odds else what
        self.copula = "are" if self.what.startswith("the odds") else "is"
        self.scale = "" if self.factor or family.link == "identity" else ", on the scale of the coefficients"

    def of(self, columns: tuple[str, ...], lines: list[Row], others: list[tuple[str, ...]]) -> str:
        """The sentence of the interaction of some columns; numbers alone where it depends on another interaction."""
        levels = [bool(LEVEL.match(part)) for part in factors_of(lines[0]["name"])]
        alone = len(columns) == 2 and not any({*columns} <= {*other} for other in others)
        if alone and not any(levels) and {*columns} <= self.names:
            return self._of_numbers(columns, lines[0])
        if alone and all(levels) and len(lines) < FEW:
            return " ".join(map(self._of_levels, lines))
        if alone and levels[0] != levels[1]:
            x, label = columns if levels[1] else columns[::-1]
            seen = [_level(row["name"], label) for row in lines]
            reference = reference_of(self.model, label, seen, self.frame)
            free = x in self.names and not any(x in other for other in others)
            if free and reference and len(lines) < FEW:
                return self._of_slopes(x, label, reference, lines)
        return self._listed(columns, lines)

    def _of_slopes(self, x: str, label: str, reference: str, lines: list[Row]) -> str:
        """The slope at each level, by the joint posterior of the coefficients, and how much slopes differ."""
        step = step_of(self.model, x, self.frame)
        levels = [_level(row["name"], label) for row in lines]
        functions, names = self.model._functions(None, None)
        own = functions[[names.index(x)]]
        turns = functions[[names.index(row["name"]) for row in lines]]
        together = sparse.csr_array(sparse.vstack([turns + sparse.vstack([own] * len(lines)), own]) * step)
        slopes = effects_of(self.model.posterior_, together, [*levels, reference], 0.9).rows
        said: list[str] = []
        before = ""
        for row in slopes:
            verb, amount = self._change(row)
            where = f"with {label if not said else ''} {row['name']}".replace("  ", " ")
            per = f" per {_unit(step)}of {x}" if not said else ""
            ends = f"({'90 %: ' if not said else ''}{self._ends(row)})"
            subject = f", {self.what} {verb}" if not said else "" if verb == before else f" it {verb}"
            said.append(f"{where}{subject} by {amount}{per} {ends}")
            before = verb
        differences = effects_of(self.model.posterior_, sparse.csr_array(turns * step), levels, 0.9).rows
        return f"W{'; '.join([*said, self._differences(differences, reference)])[1:]}{self.scale}."

    def _differences(self, rows: list[Row], reference: str) -> str:
        """How much slopes differ from that of the reference."""
        kind = "ratio" if self.factor else "difference"
        if len(rows) == 1:
            (row,) = rows
            if is_clear(row):
                return f"the {kind} is {self._change(row)[1]} ({self._ends(row)})"
            sides = f"{row['name']} {'to' if self.factor else 'less'} {reference}"
            return f"the {kind} ({sides}) is not clear: {self._signed(row)}"
        each = [f"{row['name']} {self._signed(row)}{'' if is_clear(row) else ', not clear'}" for row in rows]
        return f"{kind}s {'to' if self.factor else 'from'} {reference}: {'; '.join(each)}"

    def _of_levels(self, row: Row) -> str:
        """How far two levels together are from the sum of their effects."""
        pair = " and ".join(readable(part) for part in factors_of(row["name"]))
        more = "multiply to" if self.factor else "add up to"
        if not is_clear(row):
            return f"Whether {pair} together differ from what their effects {more} is not clear: {self._signed(row)}."
        verb, amount = self._change(row, ("is higher", "is lower"))
        size = f"{verb} by {amount} than" if not self.factor else f"{self.copula} {amount} times"
        return (
            f"With {pair} together, {self.what} {size} what their effects {more} (90 %: {self._ends(row)}){self.scale}."
        )

    def _of_numbers(self, columns: tuple[str, ...], row: Row) -> str:
        """How the slope of one column changes along the other."""
        steps = [step_of(self.model, name, self.frame) for name in columns]
        (x, z), (of_x, of_z) = columns, map(_unit, steps)
        row = {end: row[end] * steps[0] * steps[1] for end in ("mean", "low", "high")}
        change = f"the {'factor' if self.factor else 'change'} of {self.what} per {of_x}of {x}"
        if not is_clear(row):
            return f"Whether {change} depends on {z} is not clear: {self._signed(row)} per {of_z}of {z}{self.scale}."
        verb, amount = self._change(row)
        return f"T{change[1:]} {verb} by {amount} per {of_z}of {z} (90 %: {self._ends(row)}){self.scale}."

    def _listed(self, columns: tuple[str, ...], lines: list[Row]) -> str:
        """The coefficients, those first that are clear."""
        first = sorted(lines, key=lambda row: not is_clear(row))
        shown = [f"{readable(row['name'])} {_plain(row)}" for row in first[:LISTED]]
        rest = f" and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
        clear = "" if any(map(is_clear, lines)) else ", of which none is clear"
        return (
            f"{', '.join(columns)} interact, by the coefficients (90 %) {', '.join(shown)}{rest}{clear}: the effect of "
            "one depends on the other, so read them together."
        )

    def _change(self, row: Row, verbs: tuple[str, str] = ("rises", "falls")) -> tuple[str, str]:
        """A verb, and by how much: a factor, an amount without its sign where that is clear, or one with it."""
        if self.factor:
            return f"{self.copula} multiplied", self._value(row["mean"])
        if not is_clear(row):
            return "changes", self._value(row["mean"])
        return verbs[0] if row["mean"] > 0.0 else verbs[1], self._value(abs(row["mean"]))

    def _ends(self, row: Row) -> str:
        ends = row["low"], row["high"]
        if not self.factor and is_clear(row):
            ends = tuple(sorted(map(abs, ends)))
        return f"{self._value(ends[0])} to {self._value(ends[1])}"

    def _signed(self, row: Row) -> str:
        return f"{self._value(row['mean'])} ({self._value(row['low'])} to {self._value(row['high'])})"

    def _value(self, value: float) -> str:
        if not self.factor:
            return number(float(value), 2)
        factor = float(np.exp(np.clip(value, -700.0, 700.0)))
        # what a factor near one says is how far from one it is
        return number(factor, 4 if abs(factor - 1.0) < 0.1 else 3 if 0.5 < factor < 2.0 else 2)


def _plain(row: Row) -> str:
    return f"{number(row['mean'], 2)} ({number(row['low'], 2)} to {number(row['high'], 2)})"


def _unit(step: float) -> str:
    """'unit ' or '10 '."""
    return "unit " if step == 1.0 else f"{step:g} "


def _level(name: str, column: str) -> str:
    """The level of a column in the name of a product."""
    found = [LEVEL.match(part) for part in factors_of(name)]
    return next(m["level"] for m in found if m and m["column"].strip() == column)
