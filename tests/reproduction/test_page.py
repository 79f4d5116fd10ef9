"""The page of an entry: theirs, ours, and a reason wherever they differ."""

import csv
import re
from pathlib import Path

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
    assert page.startswith("# Figure 2.2 of Challis (2013): a line through")
    assert "<details>" not in page
    assert "1 of 3 agree, 1 differ (1 not explained), 1 are not compared." in page
    assert "![alt text](x.png)" in page
    assert r"| b \| c | 1 | 2 | no | not explained: no run tests it |" in page
    assert "| e | 1 | 2 | test: not met |  |" in page
    with written[1].open(encoding="utf8") as file:
        assert list(csv.reader(file)) == [["n", "value"], ["1", "0.1234567891"]]


def test_long_tables_are_folded_and_whole(tmp_path):
    rows = [(n, 0.5 * n) for n in range(40)]
    claims = [Claim(f"claim {n}", "1", "1", True) for n in range(30)]
    page = write_page(tmp_path, "figure_2_2", claims, [Table("numbers", "Some", ("n", "value"), rows)])[0]
    text = page.read_text(encoding="utf8")
    shown = re.sub("<details>.*?</details>", "", text, flags=re.DOTALL)
    assert text.count("<details>") == 2
    assert "<summary>All 40 rows</summary>" in text
    assert "30 of 30 agree" in shown
    assert "| 39 | 19.5 |" in text
    assert "| 39 | 19.5 |" not in shown


KEPT = sorted(path for path in (Path(__file__).parents[2] / "docs/reproduced").glob("*.md") if path.stem != "index")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_pages_open_with_their_document_and_are_a_few_screens_tall(path):
    text = path.read_text(encoding="utf8")
    assert re.match(r"# .* of \w+ \(\d{4}\)", text.partition("\n")[0])
    assert text.count("<details>") == text.count("</details>")
    assert len(re.sub("<details>.*?</details>", "", text, flags=re.DOTALL).splitlines()) < 80


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
