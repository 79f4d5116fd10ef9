"""Pieces of HTML. Text is escaped here, once, whatever it is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

# --- The style sheet of the report: screens wide and narrow, light and dark, and paper.

CSS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --panel: #f5f6f8; --ink: #1b1f24; --muted: #59636e; --rule: #d5dae0;
  --accent: #0072b2; --soft: #8fa3b3; --warn: #b34700; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --panel: #1d2228; --ink: #e8ebee; --muted: #9ba6b2; --rule: #343b44;
  --accent: #56b4e9; --soft: #6f8494; --warn: #f0a04b; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 28px 20px 56px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
p, li { max-width: 70ch; overflow-wrap: anywhere; }
.lead { color: var(--muted); margin: 0 0 1.3rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 0; }
.tiles div { background: var(--panel); border-radius: 8px; padding: 11px 14px; min-width: 0; }
.tiles dt { color: var(--muted); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.3; overflow-wrap: anywhere; }
.tiles small { display: block; font-size: .8rem; font-weight: 400; color: var(--muted); line-height: 1.35; }
.pair { display: flex; flex-wrap: wrap; gap: 22px; align-items: flex-start; }
.pair > * { flex: 1 1 300px; min-width: 0; }
figure { margin: .4rem 0; max-width: 460px; }
figcaption { color: var(--muted); font-size: .85rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; }
thead th { color: var(--muted); font-size: .8rem; font-weight: 500; border-bottom: 1px solid var(--rule); }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule); overflow-wrap: break-word;
  vertical-align: top; }
tbody th { font-weight: 500; min-width: 9.5em; overflow-wrap: anywhere; }
.num { text-align: right; white-space: nowrap; }
td.bar { width: 34%; min-width: 110px; }
td.wide { overflow-wrap: normal; }
.checks tbody th { min-width: 0; overflow-wrap: normal; }
.checks small { display: block; color: var(--muted); font-size: .92em; }
.failed { color: var(--warn); font-weight: 600; }
.axis { position: relative; height: 1.4em; color: var(--muted); font-size: .8rem; }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span:first-child { transform: none; } .axis span:last-child { transform: translateX(-100%); }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--accent); }
.scores { max-width: 460px; } .learnt { max-width: 720px; }
@media (min-width: 621px) { .learnt tbody th { white-space: nowrap; } }
.unsure { color: var(--muted); }
.note { background: var(--panel); border-left: 4px solid var(--accent); padding: 9px 14px; border-radius: 0 8px 8px 0; }
.note.bad { border-color: var(--warn); }
pre { background: var(--panel); padding: 12px 14px; border-radius: 8px; overflow-x: auto; font-size: .85rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
svg.strip { display: block; width: 100%; height: 18px; }
svg.strip line, svg.chart line, svg.chart polyline { vector-effect: non-scaling-stroke; }
.strip .zero { stroke: var(--rule); stroke-width: 1; }
.strip rect { fill: var(--accent); } .strip .mean { stroke: var(--accent); stroke-width: 2.5; }
.strip.unclear rect { fill: var(--soft); } .strip.unclear .mean { stroke: var(--soft); }
svg.chart { display: block; width: 100%; height: auto; overflow: hidden; }
.chart text { fill: var(--muted); font-size: 11.5px; } .chart .label { fill: var(--ink); font-size: 12px; }
.chart .grid { stroke: var(--rule); stroke-width: .6; }
.chart .diagonal { stroke: var(--muted); stroke-dasharray: 5 4; fill: none; stroke-width: 1; }
.chart .curve { stroke: var(--accent); fill: none; stroke-width: 1.6; }
.chart .whisker { stroke: var(--accent); stroke-width: 1.5; opacity: .55; }
.chart .mark { fill: var(--accent); } .chart .dot { fill: var(--accent); opacity: .5; }
.chart .c1 { fill: #d55e00; } .chart .c2 { fill: #009e73; } .chart .c3 { fill: #cc79a7; }
.chart .c4 { fill: #e69f00; } .chart .c5 { fill: var(--soft); }
footer { margin-top: 2.6rem; color: var(--muted); font-size: .85rem; }
@media (max-width: 620px) {
  main { padding: 18px 16px 40px; } h1 { font-size: 1.4rem; }
  .coefficients thead { display: none; }
  .coefficients tr { display: grid; grid-template-columns: 1fr auto; padding: 7px 0;
    border-bottom: 1px solid var(--rule); }
  .coefficients th, .coefficients td { border: 0; padding: 1px 0; }
  .coefficients th { grid-area: 1 / 1; } .coefficients td.mean { grid-area: 1 / 2; font-weight: 600; }
  .coefficients td.bar { grid-area: 2 / 1 / 3 / 3; width: auto; }
  .coefficients td.ends { grid-area: 3 / 1; color: var(--muted); text-align: left; }
  .coefficients td.sign { grid-area: 3 / 2; color: var(--muted); }
  .coefficients td.sign:not(:empty)::before { content: "P(> 0) "; }
  .coefficients td.wide, .coefficients td.bar:empty { display: none; }
  .checks thead { display: none; }
  .checks tr { display: grid; grid-template-columns: 1fr auto; padding: 7px 0; border-bottom: 1px solid var(--rule); }
  .checks th, .checks td { border: 0; padding: 1px 0; } .checks td:last-child { grid-area: 2 / 1 / 3 / 3; }
  .columns td.wide, .columns th.wide { display: none; } }
@media print { :root { color-scheme: light; --paper: #fff; --panel: #f5f6f8; --ink: #000; --muted: #444; --rule: #ccc;
    --accent: #0072b2; --soft: #8fa3b3; --warn: #b34700; }
  html { font-size: 10pt; } body { font-size: 9.5pt; } main { max-width: none; padding: 0; } table { font-size: 8.5pt; }
  th, td { padding: 2px 8px 2px 0; } td.bar { width: 28%; } .tiles { grid-template-columns: repeat(5, 1fr); }
  .tiles dd { font-size: 12pt; } h2 { margin-top: 1.2rem; } svg.strip { height: 12px; }
  h2 { break-after: avoid; } tr, figure, .tiles div, .note { break-inside: avoid; }
  thead { display: table-header-group; } @page { margin: 16mm; } }
""".strip()
#: nothing may be loaded from anywhere, and nothing may run
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


#: a hyphen before a number, at its start or after its e
_MINUS = re.compile(r"(?<![\w.-])-(?=[\d.])|(?<=\de)-(?=\d)")


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


def write_minus(words: str) -> str:
    """Words whose numbers have the minus sign that `number` writes; hyphens between letters stay.

    Examples
    --------
    >>> write_minus("gradient 1.1e-08, log evidence -3.5, held-out")
    'gradient 1.1e−08, log evidence −3.5, held-out'
    """
    return _MINUS.sub("−", words)


def section(heading: str, *parts: str) -> str:
    return f"<section><h2>{text(heading)}</h2>{''.join(parts)}</section>"


def paragraph(words: str, name: str = "") -> str:
    return f"<p{_class(name)}>{text(write_minus(words)).replace(' %', chr(160) + '%')}</p>" if words else ""


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(write_minus(line))}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def tiles(entries: Sequence[tuple[str, str, str]]) -> str:
    """Label, value and a small remark each."""
    cells = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(value)}<small>{text(remark)}</small></dd></div>"
        for label, value, remark in entries
    )
    return f'<dl class="tiles">{cells}</dl>'


def opening(title: str, lead: str, found: Iterable[str], entries: Sequence[tuple[str, str, str]]) -> str:
    """The head of a page: title, lead, a conclusion in plain words, and the numbers to see first."""
    said = section("Conclusion", bullets(found))
    return f"<header><h1>{text(title)}</h1>{paragraph(lead, 'lead')}{said}{tiles(entries)}</header>"


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


def fold(words: str, markup: str) -> str:
    """Something that opens when its heading is clicked."""
    return f"<details><summary>{text(words)}</summary>{markup}</details>"


def _class(name: str) -> str:
    return f' class="{text(name)}"' if name else ""


def page_of(title: str, body: str, version: str) -> str:
    """A whole page around its sections."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">\n'
        f'<title>{text(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{CSS}\n</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n<footer>Made with latlin {text(version)}.</footer>\n</main>\n"
        "</body>\n</html>\n"
    )
