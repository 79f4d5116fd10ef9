"""Formulas: `y ~ x * sex + (1 + x | g) + s(t) + offset(log(days))` as a response, terms and offsets.

The linear part is left to formulaic where it is more than names of columns; everything else is read here. Nothing in a
formula is ever run: expressions are arithmetic with a list of functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from latlin.additive.ar1 import AR1
from latlin.additive.besag import BYM2, Besag
from latlin.additive.coding import check_pieces
from latlin.additive.expression import CODINGS, FUNCTIONS
from latlin.additive.fixed import Fixed
from latlin.additive.frame import formula_name, has_column
from latlin.additive.group import Group
from latlin.additive.lattice import Lattice
from latlin.additive.random_walk import RandomWalk
from latlin.additive.seasonal import Seasonal
from latlin.additive.smooth import Smooth
from latlin.additive.spline import Spline
from latlin.additive.term import Term
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class ResponseSide:
    """The left-hand side: expressions of columns.

    Attributes
    ----------
    y : str
        What is observed; successes, for a binomial response.
    failures, trials : str or None
        Of a binomial response, one of the two.
    se : str or None
        Known standard deviations of the observations.
    weights : str or None
        How often each row counts.
    event : str or None
        Of a time: 1 where the event was seen, 0 where only waiting was, 2 where it came before, 3 where it came
        between the time and `upper`.
    upper : str or None
        Ends of the intervals of such times.
    """

    y: str
    failures: str | None = None
    trials: str | None = None
    se: str | None = None
    weights: str | None = None
    event: str | None = None
    upper: str | None = None

    def success(self, classes: Any) -> str:
        """The class that counts as one, in words; empty where successes are counted among trials."""
        if self.trials is not None or self.failures is not None:
            return ""
        return f"{self.y} = {1 if classes is None else classes[1]}"


@storable
@dataclass(frozen=True)
class Formula:
    """A formula, read."""

    response: ResponseSide
    terms: tuple[Term, ...]
    offsets: tuple[str, ...]

    @property
    def columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that the response reads, and those that explain it.

        >>> read_formula("log(y) ~ x * sex + (1 + t | a/b) + s(z, by=sex) + offset(log(days))").columns
        (('y',), ('x', 'sex', 'a', 't', 'b', 'z', 'days'))
        """
        sides = [side for side in vars(self.response).values() if side is not None]
        explaining = [source for term in self.terms for source in term.sources]
        return _columns_of(sides), _columns_of([*explaining, *self.offsets])


def _columns_of(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in sources for name in check_pieces(source)))


def absent_columns(text: str, frame: Any, explaining: bool = False) -> list[str]:
    """The columns that a formula reads and a table does not have, as they are written; those that explain, if wished.

    >>> absent_columns("y ~ `rain (mm)` + moth + age", {"y": [1.0], "age": [2.0]})
    ['rain (mm)', 'moth']
    """
    quoted = {formula_name(name): name for name in QUOTED.findall(text)}
    of_response, others = read_formula(text).columns
    names = others if explaining else (*of_response, *others)
    return [quoted.get(name, name) for name in dict.fromkeys(names) if not has_column(frame, name)]


def _surface(column: str, other: str, **options: Any) -> Spline:
    return Spline((column, other), **options)


def _spline(column: str, other: str | None = None, **options: Any) -> Spline:
    return Spline(column, **options) if other is None else _surface(column, other, **options)


def _process(column: str, smoothness: Any = 1.5, **options: Any) -> Smooth:
    if isinstance(smoothness, str):
        raise ValueError(
            "a process is of one column: write te(x, z) for a surface, lattice(i, j) for a grid, take Map(…) among "
            "terms=[…], or latlin.gp"
        )
    return Smooth(column, smoothness, **options)


#: a power of one column
POWER = re.compile(r"\s*[^\W\d]\w*\s*(?:\*\*|\^)\s*\d+\s*")
#: names that are called
CALLED = re.compile(r"\b([A-Za-z_]\w*)\(")
#: how Python begins a sentence on wrong arguments; what formulas call k
PYTHON_NAME, COUNT = re.compile(r"^[\w.<>]+\(\) "), re.compile(r"\bcount\b")
#: names of terms in formulas
TERMS: dict[str, Callable[..., Term]] = {
    "s": _spline,
    "te": _surface,
    "gp": _process,
    "rw1": lambda t, **options: RandomWalk(t, 1, **options),
    "rw2": lambda t, **options: RandomWalk(t, 2, **options),
    "ar1": AR1,
    "seasonal": Seasonal,
    "besag": Besag,
    "bym2": BYM2,
    "lattice": Lattice,
}
#: columns of terms, which are no options of them
COLUMNS = {"self", "column", "row", "other", "graph"}
#: what users of other packages write, and what says the same here
ELSEWHERE = {
    "f": "(1 | g), rw1(t), rw2(t), ar1(t), besag(area) or bym2(area)",
    "re": "(1 | g)",
    "factor": "C(x)",
    "mo": "C(x)",
    "ns": "s(x), or bs(x, df=5)",
    "ti": "te(x, z)",
    "t2": "te(x, z)",
    "rw": "rw1(t) or rw2(t)",
    "ar": "ar1(t)",
    "Surv": "time | event(seen) on the left",
    "cens": "time | event(seen), where seen is 1 for an event and 0 for waiting",
    "p": "successes | trials(n)",
}


#: what users of other packages write before a function; names of columns that are no names of Python
NUMPY, QUOTED = re.compile(r"\b(?:np|numpy)\.(?=\w+\()"), re.compile(r"`([^`]+)`")


def read_formula(text: str) -> Formula:
    """The parts of a formula.

    >>> read = read_formula("y ~ x + (1 | g) + offset(log(days))")
    >>> read.terms, read.offsets
    ((Fixed('x'), Group('g')), ('log(days)',))
    >>> read_formula("y ~ `rain (mm)` + (1 | `home town`)").terms
    (Fixed('rain_mm'), Group('home_town'))
    """
    plain = NUMPY.sub("", QUOTED.sub(lambda name: formula_name(name[1]), text)) if isinstance(text, str) else ""
    if plain.count("~") != 1:
        raise ValueError(f"a formula has one ~ between response and terms, as in 'y ~ x + (1 | g)', got {text!r:.100}")
    left, right = plain.split("~")
    terms: list[Term] = []
    offsets: list[str] = []
    pieces: list[str] = []
    intercept = True
    for sign, piece in split_sum(right):
        if piece in ("0", "1"):
            intercept = (piece == "1") == (sign == "+")
        elif sign == "-":
            raise ValueError(f"only the intercept can be taken off a formula (- 1), got '- {piece}'")
        elif piece == ".":
            raise ValueError("'.' does not stand for all other columns here: name the columns")
        elif piece.startswith("offset(") and piece.endswith(")"):
            offsets.append(piece[len("offset(") : -1].strip())
        elif groups := _groups(piece):
            terms += groups
        elif term := _term(piece):
            terms.append(term)
        else:
            _refuse_other_words(piece)
            pieces.append(piece)
    read = _with_coefficients(f"the formula {text!r}", pieces, intercept, merge_groups(terms))
    return Formula(read_response(left), read, tuple(offsets))


def _refuse_other_words(piece: str) -> None:
    """Refuse a call of what is neither a function nor a term, and a term that is not alone in its place of the sum."""
    name = piece.partition("(")[0].strip()
    if name in ELSEWHERE and piece.endswith(")"):
        raise ValueError(f"{name!r} in {piece!r} is not a term of formulas here: write {ELSEWHERE[name]}")
    if "|" in piece:
        raise ValueError(f"a group stands in parentheses and alone, as (1 | g) or (1 + x | g) does, got {piece!r}")
    if POWER.fullmatch(piece):
        raise ValueError(f"{piece!r} in a formula crosses a column with itself, which is the column: write I({piece})")
    inside = next((word for word in CALLED.findall(piece) if word in TERMS), None)
    if inside:
        raise ValueError(f"{inside}(…) stands alone in a sum, and {inside}(…, by=g) has one per label, got {piece!r}")
    known = {*FUNCTIONS, *CODINGS}
    if name.isidentifier() and piece.endswith(")") and name not in known:
        raise ValueError(
            f"{name!r} in {piece!r} is neither a term ((1 | g), offset, {', '.join(TERMS)}) nor a function of formulas "
            f"({', '.join(sorted({*FUNCTIONS, 'C', 'poly', 'bs'}))})"
        )


def _with_coefficients(given: str, pieces: Sequence[str], intercept: bool, terms: Sequence[Term]) -> tuple[Term, ...]:
    """All coefficients as the first term, where there are some."""
    read = (*([Fixed(*pieces, intercept=intercept)] if pieces or intercept else []), *terms)
    if not read:
        raise ValueError(f"{given} has no terms")
    return read


def read_response(text: str) -> ResponseSide:
    """The left-hand side: `y`, `log(y)`, `cbind(successes, failures)`, `y | se(s)`, `y | trials(n) + weights(w)`."""
    sides = _split(text, "|")
    if len(sides) > 2 or not sides[0]:
        raise ValueError(f"the response must be like 'y', 'cbind(s, f)' or 'y | trials(n)', got {text.strip()!r}")
    options = {}
    for _, piece in split_sum(sides[1]) if len(sides) == 2 else []:
        name, _, inside = piece.partition("(")
        if name not in ("se", "trials", "weights", "event", "upper") or not inside.endswith(")"):
            instead = f": write {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise ValueError(
                f"after 'y |' come se(…), trials(…), event(…), upper(…) or weights(…), got {piece!r}{instead}"
            )
        options[name] = inside[:-1].strip()
    main = sides[0]
    if main.startswith("cbind(") and main.endswith(")"):
        both = _split(main[len("cbind(") : -1], ",")
        if len(both) != 2:
            raise ValueError(f"cbind has two columns, successes and failures, got {main!r}")
        return ResponseSide(both[0], failures=both[1], **options)
    if (name := main.partition("(")[0].strip()) in ELSEWHERE and main.endswith(")"):
        raise ValueError(f"{main!r} is no response here: write {ELSEWHERE[name]}")
    return ResponseSide(main, **options)


def _groups(piece: str) -> list[Term]:
    """`(effects | group)` as terms: several for nested groups `a/b`."""
    if not (piece.startswith("(") and piece.endswith(")")) or "|" not in piece:
        return []
    sides = _split(piece[1:-1], "|")
    correlated = not (len(sides) == 3 and sides[1] == "")
    if len(sides) != (2 if correlated else 3) or not sides[0] or not sides[-1]:
        raise ValueError(f"a group is (effects | column), such as (1 | g) or (1 + x | g), got {piece!r}")
    effects = split_sum(sides[0])
    intercept = not any((name == "0" and sign == "+") or (name == "1" and sign == "-") for sign, name in effects)
    slopes = tuple(name for _, name in effects if name not in ("0", "1"))
    for name in slopes:
        _refuse_other_words(name)
    nested = [name.strip() for name in sides[-1].split("/")]
    if any(not all(part.strip().isidentifier() for part in name.split(":")) for name in nested):
        raise ValueError(f"a group is a column, a combination a:b or nested a/b, got {sides[-1]!r}")
    columns = [tuple(p.strip() for n in nested[: k + 1] for p in n.split(":")) for k in range(len(nested))]
    return [
        Group(names if len(names) > 1 else names[0], slopes, intercept=intercept, correlated=correlated)
        for names in columns
    ]


def merge_groups(terms: Sequence[Term]) -> list[Term]:
    """Effects of the same groups that were written one by one, which are not correlated, as one term.

    >>> merge_groups(read_formula("y ~ (1 | g) + (0 + x | g)").terms[1:])
    [Group('g', slopes=('x',), correlated=False)]
    """
    found: list[Term] = []
    for term in terms:
        same = [k for k, one in enumerate(found) if isinstance(one, Group) and one.label == term.label]
        if not same or not isinstance(term, Group):
            found.append(term)
            continue
        before = found[same[0]]
        assert isinstance(before, Group)
        apart = {*before.slopes}.isdisjoint(term.slopes) and not (before.intercept and term.intercept)
        if not (apart and _uncorrelated(before) and _uncorrelated(term)):
            raise ValueError(
                f"the group {term.label} is there twice: write its effects as one term, such as "
                f"(1 + x | {term.label}), or (1 + x || {term.label}) without correlations"
            )
        slopes, intercept = (*before.slopes, *term.slopes), before.intercept or term.intercept
        found[same[0]] = Group(term.columns, slopes, intercept=intercept, correlated=False)
    return found


def _uncorrelated(group: Group) -> bool:
    """Whether no two effects of a group are correlated."""
    return not group.correlated or len(group.slopes) + group.intercept == 1


def _term(piece: str) -> Term | None:
    """A call of one of our terms; None for anything else."""
    name = piece.partition("(")[0]
    if name not in TERMS or not piece.endswith(")"):
        return None
    try:
        call = ast.parse(piece, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{piece!r} cannot be read: {error.msg}") from error
    if not isinstance(call, ast.Call):
        return None
    arguments = [_argument(node) for node in call.args]
    given = {str(k.arg): _argument(k.value) for k in call.keywords}
    if {"k", "count"} <= set(given):
        raise ValueError(f"{piece!r} is not a term: k and count are one option")
    options = {"count" if option == "k" else option: value for option, value in given.items()}
    try:
        return TERMS[name](*arguments, **options)
    except (TypeError, ValueError) as error:
        words = PYTHON_NAME.sub("", str(error))
        words = COUNT.sub("k", words) if "k" in given else words
        hint = f"; options of {name} are {_options(name)}" if isinstance(error, TypeError) else ""
        raise ValueError(f"{piece!r} is not a term: {words}{hint}") from error


def _options(name: str) -> str:
    """The options of a term, as formulas call them."""
    made = {"s": Spline, "te": Spline, "gp": Smooth, "rw1": RandomWalk, "rw2": RandomWalk}.get(name, TERMS[name])
    hidden = COLUMNS | ({"order"} if name.startswith("rw") else set())
    found = [option for option in signature(made).parameters if option not in hidden]
    return ", ".join("k" if option == "count" else option for option in found)


def _argument(node: ast.expr) -> Any:
    """A constant, a pair of constants, or an expression as text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def split_sum(text: str) -> list[tuple[str, str]]:
    """Signed pieces of a sum, parentheses respected.

    >>> split_sum("x + (1 | g) - 1")
    [('+', 'x'), ('+', '(1 | g)'), ('-', '1')]
    """
    pieces, depth, sign, start = [], 0, "+", 0
    text = text.strip()
    for place, mark in enumerate([*text, "+"]):
        depth += (mark in "([") - (mark in ")]")
        if depth < 0:
            raise ValueError(f"parentheses do not match in {text!r}")
        if mark in "+-" and depth == 0:
            piece = text[start:place].strip()
            if piece:
                pieces.append((sign, piece))
            elif place and place < len(text):
                raise ValueError(f"a term is missing before {mark!r} in {text!r}")
            sign, start = mark, place + 1
    if depth:
        raise ValueError(f"parentheses do not match in {text!r}")
    return pieces


def _split(text: str, mark: str) -> list[str]:
    """Pieces between marks that are in no parentheses."""
    pieces, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == mark and depth == 0:
            pieces.append(text[start:place].strip())
            start = place + 1
    return [*pieces, text[start:].strip()]


def collect_terms(terms: Sequence[Term] | None, response: str | None, offset: str | None) -> Formula:
    """What was given as terms instead of as a formula, with its intercept unless `Fixed(intercept=False)` is there.

    >>> collect_terms([Group("g"), Fixed("x")], "y", None).terms, collect_terms([Group("g")], "y", None).terms
    ((Fixed('x'), Group('g')), (Fixed(), Group('g')))
    """
    if not terms or response is None:
        raise ValueError("AdditiveModel needs a formula, or terms=[…] and response='…'")
    for term in terms:
        if not isinstance(term, Term):
            raise ValueError(f"terms must hold terms of latlin.additive, got {term!r:.80}")
    fixed = [term for term in terms if isinstance(term, Fixed)]
    others = [term for term in terms if not isinstance(term, Fixed)]
    pieces = [piece for term in fixed for piece in term.pieces]
    read = _with_coefficients(f"terms={terms!r:.80}", pieces, all(term.intercept for term in fixed), others)
    return Formula(read_response(response), read, (offset,) if offset else ())
