"""Expressions in formulas, such as `log(days)` or `I(x - 2000)`: read, checked and evaluated without running code.

Only arithmetic, column names and the functions listed here are understood, so that a formula from a file is harmless.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from latlin.additive.frame import check_numbers, column
from latlin.numerics.arrays import Array

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "I": lambda x: x,
}
#: codings of levels, which are named beside a column without being one
CONTRASTS = frozenset({"contr", "Treatment", "Sum", "Helmert", "Poly", "Diff"})
#: what formulaic codes, beyond the functions above
CODINGS = CONTRASTS | {"C", "center", "scale", "standardize", "poly", "bs", "cr", "cc", "treatment", "sum", "helmert"}
OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
}


def evaluate(text: str, frame: Any) -> Array:
    """The numbers of an expression, one per row.

    >>> evaluate("log(days) + 1", {"days": [1.0, np.e]}).tolist()
    [1.0, 2.0]
    """
    tree = _parsed(text)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return check_numbers(_value(tree, frame, text), text)


def is_name(text: str) -> bool:
    """Whether an expression is a column's bare name."""
    return text.strip().isidentifier()


def is_function(text: str) -> bool:
    """Whether an expression is one call of a function listed here, such as log(x), which needs no coding."""
    try:
        node = _parsed(text)
    except ValueError:
        return False
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS


def variables(text: str) -> list[str]:
    """Names of the columns that an expression reads, in order."""
    nodes = list(ast.walk(_parsed(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    names = [node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called]
    return list(dict.fromkeys(names))


def check_coding(text: str) -> None:
    """Refuse what is neither arithmetic nor a listed function, before another package evaluates the text."""
    for node in ast.walk(_parsed(text)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS or name in CODINGS:
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="contr"), attr=name)) if name in CODINGS:
                pass
            case ast.Call():
                raise ValueError(_unknown(ast.unparse(node.func), text))
            case ast.Attribute(value=ast.Name(id="contr"), attr=name) if name in CODINGS:
                pass
            case ast.Attribute() | ast.Subscript() | ast.Lambda() | ast.NamedExpr() | ast.Await() | ast.Starred():
                raise ValueError(f"formulas hold arithmetic and functions only, got {ast.unparse(node)!r} in {text!r}")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.JoinedStr():
                raise ValueError(f"formulas hold arithmetic and functions only, got {ast.unparse(node)!r} in {text!r}")
            case ast.Name(id=name) if name.startswith("__"):
                raise ValueError(f"{name!r} is not a name of a column in {text!r}")


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        apart = re.search(r"[^\W\d]\w*(?: +[^\W\d]\w*)+", text)
        hint = f"; formulas name columns without blanks: rename {apart[0]!r}" if apart else ""
        raise ValueError(f"{text!r} is not an expression: {error.msg}{hint}") from error


def _value(node: ast.expr, frame: Any, text: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return check_numbers(column(frame, name), f"column {name!r}")
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_value(operand, frame, text))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_value(left, frame, text), _value(right, frame, text))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_value(argument, frame, text))
        case ast.Call():
            raise ValueError(_unknown(ast.unparse(node.func), text))
    raise ValueError(f"{ast.unparse(node)!r} in {text!r} is not arithmetic of columns")


def _unknown(name: str, text: str) -> str:
    return f"{name!r} in {text!r} is not a function of formulas; there are {', '.join(sorted({*FUNCTIONS, 'C'}))}"
