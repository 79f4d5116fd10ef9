"""Many Parquet files to fit or compare by: the rows stay where they are, and are encoded again in every pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latlin.cli.prepare import Choices, add_quantile, describe_encoding, describe_quantile
from latlin.datasets.columns import join_names
from latlin.datasets.encoding import (
    Encoding,
    check_missing,
    describe_gaps,
)
from latlin.datasets.problems import refuse_unknown
from latlin.datasets.summary import ColumnSummary, merge, summarise
from latlin.datasets.table import Frame, need_pandas
from latlin.datasets.target import (
    FAMILIES,
    LABELLED,
    Guess,
    Target,
    guess_family,
    learn_target,
)
from latlin.distributed.blocks import Block, combine_pairwise
from latlin.distributed.dask_blocks import map_parts
from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows


class LearntEncoding(NamedTuple):
    """How the rows of the files become numbers, what to say about it, gaps by column, and rows that have a target."""

    encoding: Encoding
    target: Target
    columns: list[dict[str, Any]]
    notes: list[str]
    gaps: dict[str, int]
    rows: int


class FileBlockRows(NamedTuple):
    """The rows of the files as numbers, when their turn comes, the target beside them, and how that came about."""

    X: Any
    y: Any
    learnt: LearntEncoding

    @property
    def target(self) -> Target:
        return self.learnt.target


def learn_files(pattern: str, choices: Choices, ask: Callable[[Guess], str]) -> FileBlockRows:
    """Look at all rows once to learn how to encode them."""
    if choices.others:
        raise ValueError("--exposure, --trials and --event are for a table in memory, not for rows in blocks")
    if choices.dates or choices.numbers or choices.missing == "model":
        raise ValueError("--dates, --numbers and --missing model are for a table in memory, not for rows in blocks")
    frame = read_rows(pattern).X
    learnt = learn(summarise_columns(frame, choices), choices, ask)
    rows = encode_frame(frame, learnt)
    return FileBlockRows(rows[learnt.encoding.names], rows[learnt.target.name], learnt)


def measure_spreads(rows: FileBlockRows) -> tuple[int, dict[str, float]]:
    """How many rows there are to fit, and the standard deviation of every feature."""
    encoding = rows.learnt.encoding
    count, total, squares = open_blocks(rows.X).total(sum_moments, _fills(encoding))
    spread = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))
    return count, dict(zip(encoding.names, spread.tolist(), strict=True))


def describe_rows(rows: FileBlockRows, count: int) -> list[str]:
    """What became of the rows of the files, of which `count` are left."""
    learnt = rows.learnt
    return [*learnt.notes, *describe_encoding(learnt.encoding, learnt.gaps, learnt.rows - count)]


def summarise_columns(frame: Any, choices: Choices) -> dict[str, ColumnSummary]:
    """One summary a column, in one pass over the files."""
    refuse_unknown(frame.columns, (choices.target, *choices.drop, *choices.categorical))
    kept = frame[[name for name in frame.columns if name not in choices.drop]]
    return {
        summary.name: summary for summary in combine_pairwise(map_parts(kept, summarise, choices.categorical), merge)
    }


def learn(seen: dict[str, ColumnSummary], choices: Choices, ask: Callable[[Guess], str]) -> LearntEncoding:
    """The encoding and the target from what was seen; gaps that must not be get a sentence."""
    goal, others = seen[choices.target], [s for name, s in seen.items() if name != choices.target]
    if choices.family not in ("auto", *FAMILIES):
        raise ValueError(f"family must be one of {join_names(('auto', *FAMILIES))}, got {choices.family!r}")
    if goal.present < 2:
        raise ValueError(f"only {goal.present} rows are left to fit")
    columns = {summary.name: summary.column(choices.levelling) for summary in others}
    used = tuple(column for column in columns.values() if column is not None)
    if not used:
        raise ValueError(f"the table has no column besides {choices.target!r} that could explain it")
    left_out = tuple(name for name, column in columns.items() if column is None)
    missing = check_missing(choices.missing)
    gaps = {column.name: seen[column.name].missing for column in used if seen[column.name].missing}
    encoding = Encoding(used, missing, left_out, tuple(gaps) if missing == "indicator" else ())
    _refuse_gaps(gaps, goal, encoding.missing)
    family, notes = choices.family, []
    if family == "auto":
        guess = guess_family(goal.series)
        family = guess.family or ask(guess)
        notes = [f"Family {family}, because {guess.reason}."] if guess.family else []
    target = add_quantile(learn_target(goal.series, family, choices.levels), choices)
    notes += describe_quantile(target)
    notes += [f"{goal.missing} rows without a target were left out."] if goal.missing else []
    return LearntEncoding(encoding, target, [s.described() for s in seen.values()], notes, gaps, goal.present)


def _refuse_gaps(gaps: dict[str, int], goal: ColumnSummary, missing: str) -> None:
    rows = goal.present + goal.missing
    if goal.missing and missing == "error":
        raise ValueError(
            f"the target {goal.name!r} is missing in {goal.missing} of {rows} rows; --missing drop leaves them out"
        )
    if gaps and missing == "error":
        raise ValueError(
            f"there are missing values: {describe_gaps(gaps)} of {rows} rows; say what to do with them by "
            "--missing: 'drop', 'mean' or 'indicator'"
        )


def encode_frame(frame: Any, learnt: LearntEncoding) -> Any:
    """The rows as numbers, and the target beside them, when their turn comes."""
    kind = np.asarray(learnt.target.labels).dtype if learnt.target.family in LABELLED else np.dtype(float)
    meta = need_pandas().DataFrame({name: np.empty(0) for name in learnt.encoding.names})
    meta[learnt.target.name] = np.empty(0, kind if kind.kind in "if" else object)
    return frame.map_partitions(encode_part, learnt.encoding, learnt.target, meta=meta)


def encode_part(part: Frame, encoding: Encoding, target: Target) -> Frame:
    """Rows of one file (or part of one) whose target is known."""
    known = part[part[target.name].notna()]
    found = encoding.encode(known)
    y = target.encode(known[target.name][found.kept])
    return found.matrix.assign(**{target.name: y if y.dtype.kind in "if" else y.astype(object)})


def sum_moments(block: Block, centre: Any) -> tuple[Any, ...]:
    """Rows, and sums and sums of squares of the columns about a centre."""
    apart = block.X - centre
    return block.n_rows, apart.sum(axis=0), np.einsum("nd,nd->d", apart, apart)


def _fills(encoding: Encoding) -> Any:
    return np.concatenate([*(column.filled() for column in encoding.columns), np.zeros(len(encoding.indicated))])
