"""The page of an entry: theirs, ours, and a reason wherever they differ."""

import csv

import numpy as np
import pytest

from reproduction.page import FAILED, SMALLER, Claim, Measured, Picture, Table, at_size, compared, write_page
from reproduction.printed import TABLE_5_1, TABLE_5_2, TABLE_5_3, TABLE_5_4, TABLE_5_5, printed
from reproduction.registry import chosen, described, entries


def test_agreement_is_two_errors_of_the_difference_and_a_digit():
    theirs = Measured(1.0, 0.03)
    assert compared("x", theirs, Measured(1.10, 0.04), "why").agrees is True
    far = compared("x", theirs, Measured(1.12, 0.04), "why")
    assert far.agrees is False
    assert far.reason == "why"
    assert far.theirs == "1.00 ± 0.03"


def test_a_smaller_run_is_not_compared():
    claim = compared("x", Measured(1.0), Measured(9.0), "why", comparable=False)
    assert claim.agrees is None
    assert claim.reason == SMALLER


def test_a_statement_that_fails_in_a_quick_run_is_said_to_fail():
    claims = [
        Claim("a", "1", "1", True),
        Claim("b", "1", "2", np.False_, "why"),
        Claim("c", "1", "2", None, "no data"),
        Claim("d", "1", "2", False, test=True),
    ]
    assert at_size(claims, quick=False) == claims
    holds, fails, unknown, test = at_size(claims, quick=True)
    assert (holds, unknown, test) == (claims[0], *claims[2:])
    assert not fails.agrees
    assert fails.reason == f"{FAILED}; why"


def test_a_page_counts_its_verdicts_and_keeps_its_numbers(tmp_path):
    claims = [
        Claim("a", "1", "1", np.True_),
        Claim("b | c", "1", "2", False),
        Claim("d", "1", "2", None, "too small"),
        Claim("e", "1", "2", False, test=True),
    ]
    (tmp_path / "x.png").write_bytes(b"")
    table = Table("numbers", "Some numbers", ("n", "value"), [(1, 0.1234567891)])
    written = write_page(tmp_path, "figure_2_2", claims, [table], [Picture(tmp_path / "x.png", "alt text")])
    assert [path.name for path in written] == ["figure_2_2.md", "numbers.csv", "x.png"]
    page = written[0].read_text(encoding="utf8")
    assert page.startswith("# Figure 2.2: a line through")
    assert "Source: Challis (2013)" in page
    assert "1 of 3 agree, 1 differ (1 not explained), 1 are not compared." in page
    assert "![alt text](x.png)" in page
    assert r"| b \| c | 1 | 2 | no | not explained: no run tests it |" in page
    assert "| e | 1 | 2 | test: not met |  |" in page
    with written[1].open(encoding="utf8") as file:
        assert list(csv.reader(file)) == [["n", "value"], ["1", "0.1234567891"]]


def test_only_entries_have_pages():
    with pytest.raises(ValueError, match=r"reproduction\.resume has no run"):
        described("resume")


def test_all_means_every_entry():
    assert chosen("all") == list(entries())
    assert chosen("figure_2.2") == ["figure-2.2"]


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [(TABLE_5_1, 12, 7), (TABLE_5_2, 19, 6), (TABLE_5_3, 9, 4), (TABLE_5_4, 19, 6), (TABLE_5_5, 19, 6)],
)
def test_printed_tables_are_whole(text, rows, columns):
    table = printed(text)
    assert len(table) == rows
    assert {len(cells) for cells in table.values()} == {columns}
