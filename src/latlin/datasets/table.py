"""Tables on disk: CSV (also compressed) and Parquet, read into data frames and written all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin.numerics.atomic import replace_file
from latlin.numerics.options import check_list

Frame = Any  # a pandas.DataFrame; pandas is imported where it is used
PARQUET = {".parquet", ".pq"}
#: how a text begins that a spreadsheet takes for a formula
FORMULA = ("=", "+", "-", "@", "\t", "\r")
SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t"}
#: columns from which on a frame is laid out anew after reading
MANY_COLUMNS = 1000
PACKED = {".gz", ".bz2", ".xz", ".zip"}


def need_pandas() -> Any:
    """pandas, or a sentence that says what to install."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: install latlin[cli]") from error
    return pandas


def read_table(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    decimal: str = ".",
    missing_values: Sequence[str] = (),
) -> Frame:
    """The data frame of a CSV (`.csv`, `.tsv`, `.txt`, also packed as `.gz` and the like) or Parquet file.

    Parameters
    ----------
    path : path
    sep : str, optional
        What separates the columns of a text file; a tab for `.tsv` and a comma for the others unless given.
    decimal : str
        Decimal mark of a text file.
    missing_values : sequence of str
        Texts that mean a missing value, besides empty cells and the usual ones (NA, NaN, null and the like).
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a file, got {path!r:.80}")
    texts = check_list("missing_values", missing_values, "texts")
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1):
        raise ValueError(f"sep must be one character, got {sep!r}")
    if not isinstance(decimal, str) or decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
    source = check_file(path)
    ending = table_ending(source)
    try:
        options = {"decimal": decimal, "na_values": texts}
        is_text = ending not in PARQUET
        frame = _read_csv(source, sep or SEPARATORS[ending], options) if is_text else _read_parquet(source)
    except UnicodeDecodeError as error:
        byte = f"byte {error.object[error.start]:#04x}"
        raise ValueError(f"{source} cannot be read as a table: {byte} is no UTF-8 text; save it as UTF-8") from error
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{source} cannot be read as a table: {' '.join(str(error).split())}") from error
    frame.columns = [str(name) for name in frame.columns]
    if not len(frame):
        raise ValueError(f"{source} has column names but no rows")
    return frame


#: rows of a table of frequencies at most, written out
MOST_REPEATED = 10**7


def repeat_rows(frame: Frame, frequency: str) -> Frame:
    """A table in which every row comes as often as a column says; that column is gone.

    Examples
    --------
    >>> import pandas
    >>> repeat_rows(pandas.DataFrame({"city": ["Rome", "Oslo"], "n": [2, 1]}), "n")["city"].tolist()
    ['Rome', 'Rome', 'Oslo']
    """
    if frequency not in frame.columns:
        raise ValueError(f"frequency must be a column of the table, got {frequency!r:.80}")
    try:
        counts = frame[frequency].to_numpy(float)
    except (TypeError, ValueError):
        raise ValueError(f"column {frequency!r} holds texts; frequencies are whole numbers") from None
    wrong = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0.0) & (counts == np.floor(counts))))
    if len(wrong):
        raise ValueError(
            f"column {frequency!r} must hold whole numbers from 0 on, got {counts[wrong[0]]:g} in row {wrong[0] + 1}"
        )
    if counts.sum() > MOST_REPEATED:
        raise ValueError(
            f"column {frequency!r} counts {counts.sum():.3g} rows, more than {MOST_REPEATED:,}; in Python, use "
            "sample_weight"
        )
    rows = np.repeat(np.arange(len(frame)), counts.astype(int))
    return frame.drop(columns=frequency).iloc[rows].reset_index(drop=True)


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that is there."""
    source = Path(path)
    if source.is_dir():
        raise ValueError(f"path {source} is a folder; expected a file, or a pattern of files like '{source}/*.parquet'")
    if not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    return source


def write_table(path: str | os.PathLike[str], frame: Frame) -> None:
    """Write a data frame as CSV or Parquet, by the file's ending; a failed write leaves the old file as it was."""
    ending = table_ending(Path(path))
    with replace_file(path) as fresh:
        if ending in PARQUET:
            need_pyarrow()
            frame.to_parquet(fresh, index=False)
        else:
            frame.to_csv(fresh, index=False, sep=SEPARATORS[ending])


def guard_text(frame: Frame) -> Frame:
    """The data frame with an apostrophe before every text, and name of a column, that a spreadsheet would run.

    Examples
    --------
    >>> frame = need_pandas().DataFrame({"=a": ["=1+1", "plain", "-x"], "n": [-1, 2, 3]})
    >>> guard_text(frame).to_csv(index=False).split()
    ["'=a,n", "'=1+1,-1", 'plain,2', "'-x,3"]
    """
    guarded = frame.rename(columns=_guarded)
    for place, kind in enumerate(guarded.dtypes):
        if not need_pandas().api.types.is_numeric_dtype(kind):
            guarded.isetitem(place, guarded.iloc[:, place].astype(object).map(_guarded))
    return guarded


def _guarded(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def table_ending(path: Path) -> str:
    """The ending that says what kind of table a file holds; a ValueError for one that is none.

    Examples
    --------
    >>> table_ending(Path("rows.csv.gz"))
    '.csv'
    """
    endings = [ending.lower() for ending in path.suffixes]
    while endings and endings[-1] in PACKED:
        endings.pop()
    if not endings or endings[-1] not in PARQUET | SEPARATORS.keys():
        known = ", ".join([*SEPARATORS, *sorted(PARQUET)])
        raise ValueError(f"the path {path} is no table by its name: it must end in one of {known}")
    return endings[-1]


def _read_csv(source: Path, separator: str, options: Mapping[str, Any]) -> Frame:
    """A table whose header names every cell; pandas would rename a second 'a', and take spare cells as row labels."""
    pandas = need_pandas()
    frame = pandas.read_csv(source, sep=separator, **options)
    if frame.shape[1] > MANY_COLUMNS:
        frame = frame.copy()  # columns of a kind side by side in memory, in place of each on its own
    names = frame.columns
    if len(names) == 1 or _may_be_renamed(names):
        names = pandas.read_csv(source, sep=separator, header=None, nrows=1, dtype=str).iloc[0].dropna()
    others = [mark for mark in ",;\t|" if len(names) == 1 and mark in names.iloc[0]]
    if others:
        seem = f"and seem to be by {others[0]!r}: give --sep '{others[0]}'"
        raise ValueError(f"its columns must be separated by {separator!r}, {seem}")
    if not frame.index.equals(pandas.RangeIndex(len(frame))):
        raise ValueError("its rows have more cells than there are column names")
    if names.duplicated().any():
        second = next(iter(names[names.duplicated()]))
        raise ValueError(f"column names must differ, and {second!r} occurs more than once")
    return frame


def _may_be_renamed(names: Any) -> bool:
    """Whether a name looks as if pandas had made it of a second one that is the same: 'a.1' beside 'a'."""
    known = set(map(str, names))
    parts = (name.rpartition(".") for name in known)
    return any(number.isdigit() and name in known for name, _, number in parts)


def _read_parquet(source: Path) -> Frame:
    need_pyarrow()
    return need_pandas().read_parquet(source)


def need_pyarrow() -> None:
    """A sentence that says what to install, if pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: install latlin[parquet]") from error


# --- Tables larger than memory: many files by a pattern, read part by part and written part by part, rows in order.


#: bytes of the numbers of a part; predictions need some ten times as much
PART_BYTES = 16 * 2**20


class FilePart(NamedTuple):
    """Some rows of a file, the number of the first (from 0), and whether they are all of it."""

    rows: Frame
    path: Path
    first: int
    whole: bool


def table_files(pattern: str | os.PathLike[str]) -> list[Path]:
    """The file of that name, or those of a pattern ("data/*.parquet"), in the order of their names."""
    if os.path.exists(pattern):
        return [Path(pattern)]
    paths = [Path(path) for path in sorted(glob(os.fspath(pattern)))]
    if not paths:
        raise FileNotFoundError(f"there is no file {os.fspath(pattern)}")
    return paths


def read_parts(path: Path, rows: int | None = None, reading: Mapping[str, Any] | None = None) -> Iterator[FilePart]:
    """The rows of a table: Parquet files in parts of `rows` rows (about 16 MiB unless given), other tables as a whole.

    A file without rows has no parts. `reading` holds options of `read_table` for text files.
    """
    if table_ending(check_file(path)) not in PARQUET:
        yield FilePart(read_table(path, **(reading or {})), path, 0, True)
        return
    yield from _parquet_parts(path, rows)


def _parquet_parts(path: Path, rows: int | None) -> Iterator[FilePart]:
    need_pyarrow()
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            total, width = file.metadata.num_rows, max(file.metadata.num_columns, 1)
            first = 0
            for batch in file.iter_batches(rows or max(1, PART_BYTES // (8 * width))):
                frame = pyarrow.Table.from_batches([batch]).to_pandas()
                frame.columns = [str(name) for name in frame.columns]
                yield FilePart(frame, path, first, len(frame) == total)
                first += len(frame)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from error


@contextmanager
def append_rows(path: str | os.PathLike[str]) -> Iterator[Callable[[Frame], None]]:
    """A function that adds rows to a new CSV or Parquet file, which takes its place when the block ends well.

    Rows that come later must have the columns of the first ones, of the same kinds.
    """
    target = Path(path)
    ending = table_ending(target)
    if target.suffix == ".zip":
        raise ValueError(f"{target} cannot be written part by part: choose another ending, .gz say")
    with replace_file(target) as fresh:
        if ending in PARQUET:
            with _parquet_rows(fresh) as add:
                yield add
        else:
            yield _text_rows(fresh, SEPARATORS[ending])


def _text_rows(fresh: Path, separator: str) -> Callable[[Frame], None]:
    def add(frame: Frame) -> None:
        frame.to_csv(fresh, index=False, sep=separator, mode="a", header=not fresh.stat().st_size)

    return add


@contextmanager
def _parquet_rows(fresh: Path) -> Iterator[Callable[[Frame], None]]:
    need_pyarrow()
    import pyarrow
    from pyarrow import parquet

    writers: list[Any] = []

    def add(frame: Frame) -> None:
        schema = writers[0].schema if writers else _schema(frame)
        if not writers:
            writers.append(parquet.ParquetWriter(fresh, schema))
        try:
            rows = pyarrow.Table.from_pandas(frame, schema=schema, preserve_index=False)
        except (pyarrow.ArrowException, KeyError) as error:
            raise ValueError(f"these rows do not fit beside those before them: {error}") from error
        writers[0].write_table(rows)

    try:
        yield add
    finally:
        for writer in writers:
            writer.close()


def _schema(frame: Frame) -> Any:
    """The kinds of the columns; those of which nothing is known yet hold texts."""
    import pyarrow

    found = pyarrow.Schema.from_pandas(frame, preserve_index=False)
    kinds = [field.with_type(pyarrow.string()) if pyarrow.types.is_null(field.type) else field for field in found]
    return pyarrow.schema(kinds)
