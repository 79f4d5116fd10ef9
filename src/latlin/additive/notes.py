"""What a formula asks that the rows cannot answer, or may not mean: groups with one row or few levels, labels that
begin anew within each level of another group, and labels that enter as numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Set
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.fixed import FixedPart
from latlin.additive.frame import column, is_category
from latlin.additive.group import GroupPart
from latlin.additive.problem import AdditiveProblem
from latlin.diagnostics.model_checks import Check
from latlin.numerics.arrays import Array

#: levels below which the prior says how much groups differ; rows beyond the levels that tell groups from noise
FEW_LEVELS, FEW_ROWS = 5, 5
#: share of the levels in which labels must begin anew, and of the labels up to the last that must be there
NEARLY, GAPS = 0.9, 0.8
#: name of the check that a group can be told from the noise
UNIDENTIFIED = "identification"
#: names of columns of labels, as whole words at the end: clinic_id, ClinicID, zip, plot_no
LABEL_NAME = re.compile(r"(?:^|_)(?:id|no|nr|code|zip|zipcode|postcode|key)$", re.IGNORECASE)
CAMEL = re.compile(r"[a-z](?:Id|ID|No|Nr|Code|Zip|Key)$")


def check_groups(problem: AdditiveProblem, learnt: Set[str]) -> list[Check]:
    """Cautions on groups that the rows say little of; `learnt` are the hyperparameters that were not given."""
    groups = _groups(problem)
    found = [
        check for part, _ in groups for check in (_one_row(problem, part, learnt), _few_levels(part, learnt)) if check
    ]
    for (part, levels), (other, others) in itertools.permutations(groups, 2):
        if set(part.columns).isdisjoint(other.columns) and (note := _recurring(part, levels, other, others)):
            found.append(note)
    if not found and groups:
        return [Check("groups", True, "groups have levels and rows enough")]
    return found


def check_columns(problem: AdditiveProblem, frame: Any) -> list[Check]:
    """A note on whole numbers that may be labels.

    They are named as labels are, every value has two rows or more on average, and there are more than two.
    """
    names = [name for part in problem.parts if isinstance(part, FixedPart) for name in part.names]
    for name in names:
        if not (name.isidentifier() and (LABEL_NAME.search(name) or CAMEL.search(name))):
            continue
        values = column(frame, name)
        if is_category(values) or not np.all(np.asarray(values, float) == np.floor(np.asarray(values, float))):
            continue
        count = len(np.unique(values))
        if 2 < count <= 0.5 * len(values):
            said = f"{name!r} holds {count} whole numbers and has one slope"
            return [Check("columns", True, said, f"If they are labels, write (1 | {name}) or C({name})")]
    return []


def _groups(problem: AdditiveProblem) -> list[tuple[GroupPart, sparse.csc_array]]:
    """Groups whose intercepts vary, and which row is of which level."""
    found = []
    for part, span in zip(problem.parts, problem.spans, strict=True):
        if isinstance(part, GroupPart) and "Intercept" in part.coding.names:
            first = span.start + part.coding.names.index("Intercept")
            found.append((part, sparse.csc_array(problem.design)[:, first : span.stop : len(part.sds)]))
    return found


def _one_row(problem: AdditiveProblem, part: GroupPart, learnt: Set[str]) -> Check | None:
    """One row per level: sd and sigma are one number. Counts have no sigma: such a group is their overdispersion."""
    observed, rows = problem.observed, problem.n_rows if problem.copies is None else len(problem.copies)
    if not (problem.family.template.gaussian and {"sigma", f"sd({part.label})"} <= learnt):
        return None
    if (observed.weight is not None and problem.copies is None) or rows - len(part.levels) >= FEW_ROWS:
        return None
    each = "one row per level" if rows == len(part.levels) else f"{len(part.levels)} levels for {rows} rows"
    said = f"{part.label!r} has {each}: its standard deviation cannot be told from the noise (sigma)"
    return Check(UNIDENTIFIED, True, said, "Leave it out")


def _few_levels(part: GroupPart, learnt: Set[str]) -> Check | None:
    """Few levels hardly say how much levels differ."""
    if len(part.levels) >= FEW_LEVELS or f"sd({part.label})" not in learnt:
        return None
    slopes = [name for name in part.coding.names if name != "Intercept"]
    instead = " * ".join([part.label, *slopes]) if len(slopes) < 2 else part.label
    said = f"with {len(part.levels)} levels the standard deviation of {part.label} is set mostly by its prior"
    return Check("groups", True, said, f"Write {instead} as a coefficient instead")


def _recurring(part: GroupPart, levels: Any, other: GroupPart, others: Any) -> Check | None:
    """Labels of `part` that begin anew within each level of `other`, as patients 1, 2, … of every clinic do.

    Crossed groups are what (1 | a) + (1 | b) means, so that the note needs evidence of a numbering: labels are whole
    numbers from 0 or 1; nearly every level of the other group has nearly all of them up to a last one; and this last
    one differs, having three values or more and being that of all labels in less than half of the levels. Where all
    levels have the same labels (items of a test, months of years, plots of a design) they are crossed by design. One
    row per pair says nothing of patients apart from its noise, so that there must be more.
    """
    numbers = _numbers(part)
    if numbers is None or len(other.levels) < 3 or len(part.columns) > 1:
        return None
    table = sparse.csr_array(others.T @ levels)
    table.eliminate_zeros()
    if levels.shape[0] < 1.2 * table.nnz:
        return None
    here = np.diff(table.indptr)
    last = np.maximum.reduceat(numbers[table.indices], table.indptr[:-1]) - numbers.min() + 1
    begins = np.minimum.reduceat(numbers[table.indices], table.indptr[:-1]) == numbers.min()
    anew = begins & (here >= 2) & (here >= GAPS * last)
    if np.mean(anew) < NEARLY or np.mean(last == last.max()) >= 0.5 or len(np.unique(last)) < 3:
        return None
    return Check(
        "groups",
        True,
        f"the labels of {part.label!r} begin anew in each level of {other.label!r}",
        f"Are these the same in each {other.label}? If not, write (1 | {other.label}/{part.label})",
    )


def _numbers(part: GroupPart) -> Array | None:
    """The labels as whole numbers that count from 0 or 1, or None."""
    try:
        values = np.array([float(str(label)) for label in part.levels.tolist()])
    except ValueError:
        return None
    whole = np.all(values == np.floor(values)) and values.min() in (0.0, 1.0)
    return values if whole and np.ptp(values) < 2 * len(values) else None
