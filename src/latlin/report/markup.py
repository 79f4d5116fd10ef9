"""Pieces of HTML. Text is escaped here, once, whatever it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def text(value: Any) -> str:
    """Anything as text that cannot become markup."""
    return escape(str(value), quote=True)


def number(value: Any, digits: int = 4) -> str:
    """A number as people read it; a dash for none.

    Examples
    --------
    >>> number(-1234.5678), number(0.00012345), number(float("nan")), number(-0.5, 2)
    ('−1235', '1.234e−4', '–', '−0.50')
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3 or size > 6:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa}e{int(power)}".replace("-", "−")
    return f"{value:.{max(digits - 1 - size, 0)}f}".replace("-", "−")


def section(heading: str, *parts: str) -> str:
    return f"<section><h2>{text(heading)}</h2>{''.join(parts)}</section>"


def paragraph(words: str, name: str = "") -> str:
    return f"<p{_class(name)}>{text(words).replace(' %', chr(160) + '%')}</p>" if words else ""


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def tiles(entries: Sequence[tuple[str, str, str]]) -> str:
    """Label, value and a small remark each."""
    cells = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(value)}<small>{text(remark)}</small></dd></div>"
        for label, value, remark in entries
    )
    return f'<dl class="tiles">{cells}</dl>'


def figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{text(caption)}</figcaption></figure>"


def table(name: str, headings: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Headings are (text, class of the column); cells are markup, the first of a row is its heading."""
    head = "".join(f'<th scope="col"{_class(kind)}>{text(words)}</th>' for words, kind in headings)
    kinds = [kind for _, kind in headings]
    body = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in rows)
    parts = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{text(name)}">{parts}</table></div>'


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    first, *rest = row
    cells = "".join(f"<td{_class(kind)}>{cell}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
    return f'<th scope="row"{_class(kinds[0])}>{first}</th>{cells}'


def _class(name: str) -> str:
    return f' class="{text(name)}"' if name else ""
