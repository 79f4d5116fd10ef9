"""The pages of cheap entries: whatever differs has a reason, and the reason names a run that tests it."""

import re

import pytest

from latlin.reproduce import page
from latlin.reproduce.page import UNTESTED, Claim, differs
from latlin.reproduce.registry import described, run_entry

CHEAP = (
    "figure-2.3",
    "figure-3.1",
    "figure-3.2",
    "figure-3.3",
    "figure-3.4",
    "figure-4.1",
    "figure-7.1",
    "affine-toys",
    "online-factor",
    "table-5.3",
)
#: a row, line, column or figure of the page, a test, a benchmark, a function or a command
NAMES_A_RUN = re.compile(
    r'rows? "|lines?\b|column|table|figure|chance \(|random splits|errors of all rows|`[^`]+`|without (it|--quick)'
)


def has_tested_reason(claim: Claim) -> bool:
    return bool(claim.reason) and claim.reason != UNTESTED and bool(NAMES_A_RUN.search(claim.reason))


def test_the_check_refuses_what_is_bare():
    for reason in ("", "not explained", UNTESTED, "other data"):
        assert not has_tested_reason(Claim("a", "1", "2", False, reason))
    assert has_tested_reason(Claim("a", "1", "2", False, 'met by row "b" (2)'))


@pytest.mark.parametrize("entry", CHEAP)
def test_what_differs_has_a_reason_that_names_a_run(entry, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    said: list[Claim] = []
    summary = page._summary
    monkeypatch.setattr(page, "_summary", lambda claims: said.extend(claims) or summary(claims))
    written = run_entry(entry, tmp_path, quick=True)
    assert said, described(written[0].stem)[0].title
    bare = [claim for claim in said if differs(claim) and not has_tested_reason(claim)]
    assert not bare
    unexplained = [claim for claim in said if claim.agrees is None and not claim.test and not claim.reason]
    assert not unexplained
    assert UNTESTED not in written[0].read_text(encoding="utf8")
