"""Reasons: a verdict names the runs that meet a number, or says that all were refuted."""

import pytest

from latlin.reproduce.page import Measured
from latlin.reproduce.reasons import Line, Trial, judged, ranked, scores_table, trials_table

THEIRS, OURS = Measured(-75.0, 2.0, 0), Measured(10.0, 3.0)


def _line(*trials):
    return Line("LML", THEIRS, OURS, trials)


def _trial(run, value, against=""):
    return Trial(run, f"supposing {run}", Measured(value, 2.0), against)


def test_a_row_that_meets_a_number_is_its_reason():
    claim = judged(_line(_trial("far", 90.0), _trial("bare", -74.0)))
    assert claim.agrees is False
    assert claim.reason == 'supposing bare: row "bare" meets it, -74 ± 2'


def test_others_that_meet_it_are_named():
    claim = judged(_line(*(_trial(name, value) for name, value in (("a", -75.0), ("b", -76.0), ("c", -72.0)))))
    assert claim.reason.index('"a"') < claim.reason.index('"b"')
    assert claim.reason.endswith('so do rows "c"')


def test_where_no_row_meets_it_all_are_refuted():
    reason = judged(_line(_trial("near", -50.0), _trial("far", 90.0))).reason
    assert reason.startswith('not explained: every reason tested is refuted; nearest are "near", -50 ± 2')
    assert reason.endswith('farther rows "far"')
    assert "none is nearer than ours" in judged(_line(_trial("far", 90.0))).reason
    assert judged(_line()).reason == "not explained: no run tests a reason"


def test_a_row_that_contradicts_the_document_meets_nothing():
    reason = judged(_line(_trial("scale", -75.0, "its TLP is wrong"))).reason
    assert reason.startswith("not explained")
    assert "which would do but its TLP is wrong" in reason


def test_a_row_that_is_too_wide_explains_nothing():
    line = _line(Trial("vague", "supposing much", Measured(-60.0, 50.0)))
    assert not line.meets(line.tests[0])
    assert "is too wide to tell" in judged(line).reason
    assert trials_table("t", [line]).rows[0][-1] == "would do, but is too wide to tell"


def test_a_row_must_close_half_of_the_gap():
    line = Line("MSE", Measured(26.0, 1.0, 0), Measured(19.0, 1.0), [Trial("other", "so", Measured(22.4, 1.0))])
    assert line.agrees_in(line.tests[0])
    assert "closes less than half of the gap" in judged(line).reason


def test_rows_are_ranked_by_what_they_do_for_all_lines():
    broken = Line("TLP", THEIRS, Measured(-75.0), [_trial("breaks", 0.0), _trial("keeps", -75.0)])
    first, second = ranked([_line(_trial("breaks", -75.0), _trial("keeps", -75.0)), broken])
    assert [test.run for test in first.tests] == [test.run for test in second.tests] == ["keeps", "breaks"]


def test_a_number_that_agrees_has_no_reason():
    line = Line("LML", THEIRS, Measured(-74.0, 1.0), [_trial("bare", -90.0)])
    assert judged(line).agrees is True
    assert judged(line).reason == ""
    assert judged(_line(), comparable=False).agrees is None


def test_no_number_is_never_nearer():
    assert "none is nearer" in judged(_line(_trial("failed", float("nan")))).reason


@pytest.mark.parametrize(
    ("value", "against", "word"), [(-75.0, "", "meets it"), (0.0, "", "nearer"), (50.0, "", "farther")]
)
def test_the_table_of_tests_says_how_each_did(value, against, word):
    (row,) = trials_table("t", [_line(_trial("one", value, against))]).rows
    assert row[1] == "one"
    assert row[-1] == word


def test_scores_count_what_is_met_and_what_is_broken():
    agreeing = Line("TLP", THEIRS, Measured(-75.0), [_trial("bare", 0.0)])
    (row,) = scores_table("t", [_line(_trial("bare", -75.0)), agreeing]).rows
    assert row == ("bare", "supposing bare", 1, 1, 1, 1)
