"""Tables 5.2, 5.4 and 5.5 of Challis (2013) beside ours: every printed number, and what the text says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.covariance_tables import (
    CONSTRAINED,
    QUANTITIES,
    SMALLEST,
    Found,
    Plan,
    figure_of,
    table_of,
)
from reproduction.output import made
from reproduction.page import TESTED, Claim, Measured, at_size, compared, write_page
from reproduction.printed import printed

#: bounds a row that fits to the tolerance of the tables cannot tell apart
NEAR = 1e-4
#: data sets per column in the tables
SETS = 10
SECONDS = "another machine, language and optimiser; `benchmarks/covariances.py` times ours alone"
NOT_RUN = "not run: no data set of this column is finished; the command without --quick goes on where it was"
TABLE = "the table above has the means and standard errors of every row"


def ours(values: Array, theirs: Measured) -> Measured:
    """Mean and standard error; with fewer data sets than theirs, at least the error their spread gives for as many.

    "± 0.00" is an error between 0 and 0.005: it counts as 0.0025.
    """
    error = float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    if len(values) < SETS:
        printed_error = theirs.error or 0.25 * 10.0**-theirs.digits
        error = max(error, printed_error * np.sqrt(SETS / len(values)))
    return Measured(float(values.mean()), float(error), theirs.digits)


def run_table(
    folder: str | os.PathLike[str], stem: str, text: str, theirs_at: Plan, found: Found, quick: bool
) -> list[Path]:
    """The page, the table and the figure."""
    target = made(folder)
    picture = figure_of(target / f"{stem}.png", found, quick)
    return write_page(target, stem, claims(text, theirs_at, found), [table_of(stem, found)], [picture])


def claims(text: str, theirs_at: Plan, found: Found) -> list[Claim]:
    """The statements of §5.2, and every printed number."""
    same_size = list(found) == theirs_at.columns
    said = at_size([*statements(found), *expectations(text, found)], not same_size)
    for quantity, method, theirs, i in _cells(text):
        n, k = theirs_at.columns[i]
        what, methods = f"{quantity}, {method}, N = {n}, K = {k}", list(found.values())[i]
        if not methods:
            said.append(Claim(what, str(theirs), "–", None, NOT_RUN))
            continue
        mine = ours(methods[method][:, QUANTITIES.index(quantity)], theirs)
        said.append(compared(what, theirs, mine, SECONDS if quantity == "seconds" else TESTED, same_size))
    return said


def statements(found: Found) -> list[Claim]:
    """What §5.2 says of the tables in words."""
    done = {column: methods for column, methods in found.items() if methods}
    means = {column: {name: v.mean(axis=0) for name, v in methods.items()} for column, methods in done.items()}
    by_rows = [means[column]["Chev"][1] for column in list(means)[::2]]
    spread = max(np.ptp([methods[name][2] for name in CONSTRAINED]) / methods["Chev"][2] for methods in means.values())
    ahead = [min(methods[name][3] for name in CONSTRAINED) - methods["LVB"][3] for methods in means.values()]
    few = [means[column] for column in list(found)[:4] if column in means]
    near = max(max(methods["FA"][1], methods["Chev"][1]) - methods["Band"][1] for methods in few)
    below = min(methods["Full"][1] - max(methods[name][1] for name in CONSTRAINED) for methods in means.values())
    rises = bool(np.all(np.diff(by_rows) > 0.0))
    return [
        Claim("bound a row against N, chevron", "rises", " < ".join(f"{b:.3f}" for b in by_rows), rises, TABLE),
        Claim(
            "the mean, over Chev, Band and FA",
            "broadly the same",
            f"distances within {spread:.1%}",
            bool(spread < 0.02),
            TABLE,
        ),
        Claim(
            "held-out score of LVB below the others'",
            "noticeably",
            f"by {min(ahead):.3f} to {max(ahead):.3f}",
            min(ahead) > 0.0,
            TESTED,
        ),
        Claim(
            "largest bound where N ≤ D",
            "Band, then Chev and FA close by",
            f"the others exceed Band by {near:+.3f} at most",
            bool(near <= 0.005),
            _band_first(list(found.values())[:4]),
        ),
        Claim(
            "the full covariance, which they leave out",
            "must be above all",
            f"by {below:.3f} at least",
            bool(below > -1e-6),
            TABLE,
        ),
    ]


def _band_first(few: list[dict[str, Array]]) -> str:
    """Data set by data set: in how many the band is ahead."""
    ahead = [m["Band"][:, 1] >= np.maximum(m["FA"][:, 1], m["Chev"][:, 1]) for m in few if m]
    return f'row "Band" is ahead in {sum(int(a.sum()) for a in ahead)} of {sum(a.size for a in ahead)} fits'


def expectations(text: str, found: Found) -> list[Claim]:
    """What theory demands of every data set, and how near the bounds come where data are many."""
    done = [methods for methods in found.values() if methods]
    bounds = [{name: values[:, 1] for name, values in methods.items()} for methods in done]
    above = min(float((b[name] - b["Diag"]).min()) for b in bounds for name in CONSTRAINED)
    below = min(float((b["Full"] - b[name]).min()) for b in bounds for name in CONSTRAINED)
    gain = [float((b["Sub"] - b[SMALLEST]).min()) for b in bounds]
    few = [methods for methods in list(found.values())[:4] if methods]
    ahead = min(float(m[name][:, 3].mean() - m["LVB"][:, 3].mean()) for m in few for name in CONSTRAINED)
    return [
        Claim(
            "bounds, data set by data set",
            "diagonal ≤ Chev, Band, FA ≤ full",
            f"above the diagonal by {above:.4f} at least, below the full one by {below:.4f}",
            above > -NEAR and below > -NEAR,
            TABLE,
        ),
        _where_many(text, found),
        Claim(
            "held-out score of Chev, Band and FA over LVB, N ≤ D",
            "above",
            f"by {ahead:.3f} at least",
            ahead > 0.0,
            TABLE,
        ),
        Claim(
            "bound of the subspace over that of the basis in the text",
            "never below",
            f"by {min(gain):.4f} to {max(gain):.4f} at least, by column",
            min(gain) > -NEAR,
            f'row "{SMALLEST}" has the basis of the text',
        ),
    ]


def _where_many(text: str, found: Found) -> Claim:
    """The bounds at N = 5D, where the number of data hardly leaves room for chance."""
    off = [
        abs(float(methods[name][:, 1].mean()) - _printed(text, "bound", name, column).value)
        for column, methods in list(enumerate(found.values()))[-2:]
        for name in CONSTRAINED
        if methods
    ]
    what, theirs = "bounds of Chev, Band and FA, N = 5D", "within 0.03"
    if not off:
        return Claim(what, theirs, "–", None, NOT_RUN)
    return Claim(what, theirs, f"within {max(off):.3f}", max(off) <= 0.03, TESTED)


def _printed(text: str, quantity: str, method: str, column: int) -> Measured:
    cell = printed(text)[quantity, method][column]
    assert cell is not None
    return cell


def _cells(text: str) -> Iterator[tuple[str, str, Measured, int]]:
    """Quantity, method, the printed number and its column."""
    for (quantity, method), cells in printed(text).items():
        for column, theirs in enumerate(cells):
            assert theirs is not None
            yield quantity, method, theirs, column
