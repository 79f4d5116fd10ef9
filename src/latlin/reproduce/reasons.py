"""Reasons for a difference, each tested by a run: which of them meet a printed number, and which it rules out.

Documents leave settings open. A reason is one such setting, and a run with it gives a number in place of ours; if that
agrees with the printed one the reason explains the line, if none does the page says that all of them were refuted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latlin.reproduce.page import Claim, Measured, Table, compared

#: rows that a verdict quotes with their numbers; the others are named
QUOTED = 2
#: a run whose standard error is a larger part of the gap between theirs and ours meets either, and so explains nothing
WIDE = 0.25


class Trial(NamedTuple):
    """A run with another setting, and what it gives for one printed number.

    `run` names its row, `reason` says what it supposes, and `against` what else of the same run contradicts the
    document, so that it cannot be the reason.
    """

    run: str
    reason: str
    ours: Measured
    against: str = ""


class Line(NamedTuple):
    """A printed number, ours, and the runs that test why they differ."""

    what: str
    theirs: Measured
    ours: Measured
    tests: Sequence[Trial]

    @property
    def differs(self) -> bool:
        return not compared(self.what, self.theirs, self.ours, "").agrees

    def agrees_in(self, test: Trial) -> bool:
        """The run gives the printed number, whatever else it gives."""
        return bool(compared(self.what, self.theirs, test.ours, "").agrees)

    def tells(self, test: Trial) -> bool:
        """The run is precise enough to tell the printed number from ours."""
        return test.ours.error <= WIDE * self.gap(self.ours)

    def meets(self, test: Trial) -> bool:
        """The run gives the printed number, and not vaguely; nothing of it contradicts the document.

        Of a number that differs, it must close half of the gap at least.
        """
        close = self.gap(test.ours) <= 0.5 * self.gap(self.ours) and self.tells(test)
        return self.agrees_in(test) and not test.against and (close or not self.differs)

    def gap(self, ours: Measured) -> float:
        """Distance to the printed number; infinite where there is none."""
        gap = abs(self.theirs.value - ours.value)
        return gap if gap == gap else float("inf")


def ranked(lines: Sequence[Line]) -> list[Line]:
    """The same lines, their tests in the order of what they do for all lines: numbers met less numbers broken."""
    score: dict[str, int] = {}
    for line in lines:
        for test in line.tests:
            gain = line.meets(test) if line.differs else -(not line.agrees_in(test))
            score[test.run] = score.get(test.run, 0) + gain
    return [line._replace(tests=sorted(line.tests, key=lambda test: -score[test.run])) for line in lines]


def judged(line: Line, comparable: bool = True) -> Claim:
    """The claim of a line; where it differs, the verdict on every reason.

    Examples
    --------
    >>> bare = Trial("no constant", "theirs lack a constant", Measured(-75.0, 3.0, 0))
    >>> judged(Line("evidence", Measured(-74.0, 2.0, 0), Measured(10.0, 3.0, 0), [bare])).reason
    'theirs lack a constant: row "no constant" meets it, -75 ± 3'
    """
    claim = compared(line.what, line.theirs, line.ours, "", comparable)
    return claim._replace(reason=verdict(line)) if claim.agrees is False else claim


def verdict(line: Line) -> str:
    """The rows that meet a number, in the order given; or that none does, and which were tried, nearest first."""
    if not line.tests:
        return "not explained: no run tests a reason"
    met = [test for test in line.tests if line.meets(test)]
    if met:
        said = [f'{test.reason}: row "{test.run}" meets it, {_shown(line, test)}' for test in met[:QUOTED]]
        return "; ".join([*said, *_others("so do", met[QUOTED:])])
    tests = sorted(line.tests, key=lambda test: line.gap(test.ours))
    nearer = [test for test in tests if line.gap(test.ours) < line.gap(line.ours)]
    said = [f'"{test.run}", {_shown(line, test)}{_but(line, test)}' for test in nearer[:QUOTED]]
    nearest = f"; nearest are {'; '.join(said)}" if said else "; none is nearer than ours"
    rest = [test for test in tests if test not in nearer[:QUOTED]]
    return "; ".join([f"not explained: every reason tested is refuted{nearest}", *_others("farther", rest)])


def _but(line: Line, test: Trial) -> str:
    return f", which would do but {_objection(line, test)}" if line.agrees_in(test) else ""


def _objection(line: Line, test: Trial) -> str:
    """Why a run that gives the number does not explain it."""
    if test.against:
        return test.against
    return "closes less than half of the gap" if line.tells(test) else "is too wide to tell"


def _others(word: str, tests: Sequence[Trial]) -> list[str]:
    names = ", ".join('"' + test.run + '"' for test in tests)
    return [f"{word} rows {names}"] if tests else []


def _shown(line: Line, test: Trial) -> str:
    return str(test.ours._replace(digits=line.theirs.digits))


def trials_table(name: str, lines: Sequence[Line]) -> Table:
    """Every test of every line that differs; a row is named by the number and the run."""
    rows = [
        (line.what, test.run, str(line.theirs), _shown(line, test), _word(line, test))
        for line in lines
        if line.differs
        for test in line.tests
    ]
    columns = ("number", "row", "theirs", "this run", "verdict")
    return Table(name, "Runs that test why a number differs", columns, rows)


def _word(line: Line, test: Trial) -> str:
    if line.meets(test):
        return "meets it"
    if line.agrees_in(test):
        return f"would do, but {_objection(line, test)}"
    return "nearer" if line.gap(test.ours) < line.gap(line.ours) else "farther"


def scores_table(name: str, lines: Sequence[Line]) -> Table:
    """How many numbers each run meets: those that differ without it, and those that agree without it and not with it.

    A reason that meets many and breaks none is a finding; one that meets a few of many may do so by chance.
    """
    reasons: dict[str, str] = {test.run: test.reason for line in lines for test in line.tests}
    rows = [(run, reason, *_counts(run, lines).values()) for run, reason in reasons.items()]
    return Table(name, "What each row explains", ("row", "it supposes that", *_counts("", lines)), rows)


def _counts(run: str, lines: Sequence[Line]) -> Mapping[str, int]:
    spoken = [(line, test) for line in lines for test in line.tests if test.run == run]
    return {
        "numbers that differ": sum(line.differs for line, _ in spoken),
        "of these it meets": sum(line.differs and line.meets(test) for line, test in spoken),
        "numbers that agree": sum(not line.differs for line, _ in spoken),
        "of these it breaks": sum(not line.differs and not line.agrees_in(test) for line, test in spoken),
    }
