"""The page made of records: what it says of being ahead and behind, and that its links and tables hold."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from _page import Result, latest, page, questions_of, spread, unexplained, workload_table
from _record import Record, with_ratios
from doc_pages import Page

RUN = {
    "date": "2026-11-16",
    "revision": "abc1234",
    "cpu": "a processor",
    "cores": 2,
    "memory": 8.0,
    "system": "Linux 6",
    "python": "3.11.7",
    "threads": {},
    "caches": "warm",
    "versions": {"latlin": "0.1.0", "other": "2.0"},
}
OURS = Record("quick", "N = 10", "ours", first=0.5, steady=0.1, cost=0.1, memory=3.2, accuracy={"bound": -123.456})
PEER = Record("quick", "N = 10", "peer", package="other", role="peer", first=1.0, steady=1.0, cost=1.0)
REASONS = {"quick": {"title": "Quick things", "why": "compiled", "text": "More about it."}, "slow": {"title": "Slow"}}
QUESTIONS = {"quick": "How quick?", "slow": "How slow?"}


def behind(case="N = 20"):
    return [replace(OURS, workload="slow", case=case, cost=3.0), replace(PEER, workload="slow", case=case)]


def made(records, runs=(RUN,)):
    return page([Result("small", runs, with_ratios(records))], REASONS, QUESTIONS)


def rows(text, start):
    return [line for line in text.splitlines() if line.startswith(f"| {start}")]


def test_the_page_says_where_it_comes_from():
    text = made([OURS, PEER])
    assert "Made by `make bench`" in text
    assert "Size small, 2026-11-16: a processor, 2 cores, 8 GiB" in text
    for part in ("latlin 0.1.0", "other 2.0", "Python 3.11.7", "revision abc1234", "Numba's cache warm"):
        assert part in text


def test_the_first_table_says_ahead_level_and_behind_and_why():
    (row,) = rows(made([OURS, PEER]), "[Quick")
    assert row == "| [Quick things](#quick-things) | peer | 0.1 | ahead in 1 of 1 |"
    assert "`quick.py`. compiled" in made([OURS, PEER])
    level = replace(OURS, case="N = 30", cost=1.0), replace(PEER, case="N = 30")
    (row,) = rows(made([OURS, PEER, *level]), "[Quick")
    assert "0.1 to 1 | ahead in 1 of 2, level in N = 30" in row
    (row,) = rows(made(behind()), "[Slow")
    assert "ahead in 0 of 1, **behind** in N = 20: no reason is written down" in row


def test_numbers_are_folded_under_their_question():
    text = made([OURS, PEER])
    assert "<summary>How quick?</summary>\n\n`quick.py`" in text
    assert text.count("<details>") == text.count("</details>") == 3
    # a table inside raw markup needs blank lines around it to be a table
    assert re.search(r"\n\n\| case \|.*?\|\n\n", text, re.S)


def test_without_a_peer_nobody_is_ahead():
    (row,) = rows(made([OURS, replace(PEER, role="yardstick", cost=0.05)]), "[Quick")
    assert "| 2 | alone; the ratio is to a yardstick |" in row
    (row,) = rows(made([OURS]), "[Quick")
    assert "nothing else installed does this | – | alone |" in row


def test_a_case_is_represented_by_its_first_method():
    better = replace(OURS, method="quicker but worse", cost=0.01)
    (row,) = rows(made([OURS, better, PEER]), "[Quick")
    assert "| 0.1 |" in row


def test_a_peer_that_is_absent_or_fails_is_shown_as_such():
    absent = replace(PEER, status="absent", note="other is not installed", first=None, steady=None, cost=None)
    text = made([OURS, absent])
    assert "absent: other is not installed" in text
    (row,) = rows(text, "[Quick")
    assert "alone" in row


def test_a_method_without_a_result_is_not_passed_over():
    late = replace(PEER, status="out of time", note="stopped after 90 s", first=None, steady=None, cost=None)
    (row,) = rows(made([OURS, late]), "[Quick")
    assert "alone; no peer has a result in N = 10 (out of time)" in row
    lost = replace(OURS, status="failed", first=None, steady=None, cost=None)
    (row,) = rows(made([lost, PEER]), "[Quick")
    assert "**no result** in N = 10 (failed)" in row


def test_columns_without_a_number_are_left_out():
    head = workload_table([OURS]).splitlines()[0]
    assert head == "| case | method | first, s | steady, s | memory, MiB | bound |"
    assert "| N = 10 | ours | 0.5 | 0.1 | 3 | -123.456 |" in workload_table([OURS])
    counted = replace(OURS, cost=40.0, unit="evaluations")
    assert "40 evaluations" in workload_table([counted])


def test_every_link_of_the_page_has_its_section():
    text = made([OURS, PEER, *behind()])
    made_page = Page(Path("benchmarks.md"), text)
    anchors = {anchor for file, anchor in made_page.links() if not file}
    assert anchors == {"quick-things", "slow"}
    assert anchors <= made_page.anchors()


def test_every_file_has_a_section_even_without_numbers():
    text = page([], REASONS, QUESTIONS)
    assert "No run is stored yet" in text
    assert text.count("Not measured yet.") == 2
    assert "<summary>How quick?</summary>\n\n`quick.py`." in text


def test_a_case_of_two_sizes_is_shown_once_as_the_larger_has_it():
    small, full = [OURS, replace(OURS, case="N = 5")], [replace(OURS, cost=7.0)]
    shown = latest([Result("small", [RUN], small), Result("full", [RUN], full)])
    assert [(r.case, r.cost) for r in shown] == [("N = 5", 0.1), ("N = 10", 7.0)]


def test_runs_of_different_days_are_told_apart():
    later = RUN | {"date": "2026-12-01"}
    records = with_ratios([OURS, PEER, *(replace(r, run=1) for r in behind())])
    text = page([Result("small", [RUN, later], records)], REASONS, QUESTIONS)
    assert re.search(r"2026-11-16 \(quick\):.*\n.*2026-12-01 \(slow\):", text)


def test_a_run_that_was_resumed_is_one_run_and_says_how_long_it_took():
    rest = RUN | {"versions": {"latlin": "0.1.0", "third": "3.0"}, "finished": ["slow"]}
    records = [replace(r, wall=45.0) for r in (OURS, PEER)] + [replace(r, run=1, wall=3.0) for r in behind()]
    text = page([Result("small", [RUN, rest], with_ratios(records))], REASONS, QUESTIONS)
    (line,) = [line for line in text.splitlines() if line.startswith("* Size")]
    assert "latlin 0.1.0, other 2.0, third 3.0" in line
    assert line.endswith("It took 1.6 minutes.")
    assert "`quick.py`. It took 1.5 minutes." in text
    assert "`slow.py`. It took 6 s." in text
    assert "It took" not in made([OURS, PEER])


def test_being_behind_asks_for_a_reason():
    assert unexplained(with_ratios([OURS, PEER, *behind()]), REASONS) == ["slow"]
    assert unexplained(with_ratios(behind()), {"slow": {"why": "it does more"}}) == []


def test_questions_are_first_paragraphs(tmp_path):
    (tmp_path / "toy.py").write_text('"""One\nsentence.\n\nMore.\n"""\n', encoding="utf8")
    assert questions_of(tmp_path, ["toy"]) == {"toy": "One sentence."}


@pytest.mark.parametrize(
    ("ratios", "shown"), [([], "–"), ([0.5], "0.5"), ([2.0, 0.125], "0.12 to 2"), ([1, 1.001], "1")]
)
def test_spread(ratios, shown):
    assert spread(ratios) == shown
