"""One page per entry: its tables and figures, then theirs beside ours, with the reason where they differ.

What the page says about the experiment is the docstring of the entry, so that it is written once.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reproduction.registry import described

SMALLER = "not compared: this run is smaller than the document's; run without --quick"
UNTESTED = "not explained: no run tests it"
#: of numbers whose reasons were tested once
TESTED = "not tested by this run: the page kept in docs/reproduced has the runs that tested why, and what they showed"
FAILED = "fails at the size of --quick; the run without it decides"


class Table(NamedTuple):
    """Numbers: written as `name.csv` and shown on the page."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Picture(NamedTuple):
    """A figure that was saved, and in words what it shows."""

    path: Path
    alt: str


class Claim(NamedTuple):
    """A printed number or statement beside ours; `agrees` is None where this run cannot tell, and `reason` says why.

    A `test` is a run beside ours that tests a reason: it meets what is printed or not, and is not counted.
    """

    what: str
    theirs: str
    ours: str
    agrees: bool | None
    reason: str = ""
    test: bool = False


class Measured(NamedTuple):
    """A mean with its standard error, printed to so many decimals."""

    value: float
    error: float = 0.0
    digits: int = 2

    def __str__(self) -> str:
        plain = f"{self.value:.{self.digits}f}"
        return f"{plain} ± {self.error:.{self.digits}f}" if self.error else plain


def drawn(figure: Any, path: Path, alt: str, quick: bool) -> Picture:
    """Save a matplotlib figure, coarse when quick."""
    figure.savefig(path, dpi=80 if quick else 160)
    return Picture(path, alt)


def compared(what: str, theirs: Measured, ours: Measured, reason: str, comparable: bool = True) -> Claim:
    """Agreement within two standard errors of the difference and one unit of the last printed digit.

    Examples
    --------
    >>> compared("bound", Measured(-0.41, 0.01), Measured(-0.435, 0.01), "other data").agrees
    True
    """
    shown = Measured(ours.value, ours.error, theirs.digits)
    if not comparable:
        return Claim(what, str(theirs), str(shown), None, SMALLER)
    # |a − b| ≤ 2 √(e_a² + e_b²) + one unit
    allowed = 2.0 * (theirs.error**2 + ours.error**2) ** 0.5 + 10.0**-theirs.digits
    agrees = bool(abs(theirs.value - ours.value) <= allowed)
    return Claim(what, str(theirs), str(shown), agrees, "" if agrees else reason)


def verdict(met: Sequence[str], missed: Sequence[str]) -> str:
    """What the runs that test a reason showed: which have the printed number, and which have not.

    Examples
    --------
    >>> verdict(['row "a" (1.2)'], ['row "b" (3.4)'])
    'met by row "a" (1.2); not by row "b" (3.4)'
    >>> verdict([], ['row "b" (3.4)'])
    'not explained: tested and refuted by row "b" (3.4)'
    """
    if not met:
        return "not explained: tested and refuted by " + ", ".join(missed)
    return "met by " + ", ".join(met) + ("; not by " + ", ".join(missed) if missed else "")


def at_size(claims: Sequence[Claim], quick: bool) -> list[Claim]:
    """Statements that fail in a quick run are said to fail in it, with the remark that the whole run decides."""
    return [_failed(claim) if quick and differs(claim) else claim for claim in claims]


def differs(claim: Claim) -> bool:
    """Whether a printed number or statement is not ours."""
    return claim.agrees is not None and not claim.agrees and not claim.test


def _failed(claim: Claim) -> Claim:
    return claim._replace(reason=f"{FAILED}; {claim.reason}" if claim.reason else FAILED)


def write_page(
    folder: Path,
    stem: str,
    claims: Sequence[Claim],
    tables: Sequence[Table] = (),
    pictures: Sequence[Picture] = (),
) -> list[Path]:
    """Write the page `stem.md` and one CSV file per table; the paths of the page, the tables and the figures."""
    entry, body = described(stem)
    files = [_write_csv(folder / f"{table.name}.csv", table) for table in tables]
    lines = [f"# {heading(entry.title, entry.source)}", body]
    lines += [f"![{picture.alt}]({picture.path.name})" for picture in pictures]
    for table, file in zip(tables, files, strict=True):
        lines.append(folded(f"{table.title} ([CSV]({file.name}))", _markdown(table.columns, table.rows)))
    lines += [THEIRS_AND_OURS, folded(_summary(claims), _markdown(COLUMNS, map(_row, claims)))]
    page = folder / f"{stem}.md"
    page.write_text("\n\n".join(line for line in lines if line) + "\n", encoding="utf8")
    return [page, *files, *(picture.path for picture in pictures)]


def heading(title: str, source: str) -> str:
    """The title with its document.

    Examples
    --------
    >>> heading("Table 5.2: constrained covariances", "Challis (2013)")
    'Table 5.2 of Challis (2013): constrained covariances'
    """
    what, _, rest = title.partition(": ")
    return f"{what} of {source}: {rest}"


def folded(caption: str, table: str) -> str:
    """A caption and its table; one of many rows is folded away, so that a page is a few screens tall.

    Examples
    --------
    >>> folded("two rows", "| a |\\n| --- |\\n| 1 |\\n| 2 |").splitlines()[0]
    'two rows'
    """
    rows = table.count("\n") - 1
    if rows <= MOST_ROWS:
        return f"{caption}\n\n{table}"
    return f"{caption}\n\n<details>\n<summary>All {rows} rows</summary>\n\n{table}\n\n</details>"


#: rows of a table that is shown open
MOST_ROWS = 12
THEIRS_AND_OURS = "## Theirs, ours, and why they differ"
COLUMNS = ("what", "theirs", "ours", "agree", "why they differ, and the run that tests it")
WORDS = {True: "yes", False: "no", None: "–"}


TESTS = {True: "test: met", False: "test: not met", None: "test: –"}


def _row(claim: Claim) -> tuple[str, ...]:
    reason = "" if claim.agrees else claim.reason or (UNTESTED if differs(claim) else "")
    return (claim.what, claim.theirs, claim.ours, (TESTS if claim.test else WORDS)[claim.agrees], reason)


def _summary(claims: Sequence[Claim]) -> str:
    own = [claim for claim in claims if not claim.test]
    words = [WORDS[claim.agrees] for claim in own]
    counts = {agrees: words.count(word) for agrees, word in WORDS.items()}
    text = f"{counts[True]} of {len(own)} agree, {counts[False]} differ"
    if open_ones := sum(differs(claim) and _is_open(claim.reason) for claim in own):
        text += f" ({open_ones} not explained)"
    return f"{text}, {counts[None]} are not compared." if counts[None] else f"{text}."


def _is_open(reason: str) -> bool:
    return not reason or "not explained" in reason


def _markdown(columns: Sequence[str], rows: Any) -> str:
    cells = [[f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    lines = [list(columns), ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def _write_csv(path: Path, table: Table) -> Path:
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
    return path
