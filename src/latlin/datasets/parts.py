"""Tables larger than memory: many files by a pattern, read part by part and written part by part, rows in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from latlin.datasets.table import PARQUET, SEPARATORS, Frame, existing_file, need_pyarrow, read_table, table_ending
from latlin.numerics.atomic import replacing

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
    if table_ending(existing_file(path)) not in PARQUET:
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
def appending(path: str | os.PathLike[str]) -> Iterator[Callable[[Frame], None]]:
    """A function that adds rows to a new CSV or Parquet file, which takes its place when the block ends well.

    Rows that come later must have the columns of the first ones, of the same kinds.
    """
    target = Path(path)
    ending = table_ending(target)
    if target.suffix == ".zip":
        raise ValueError(f"{target} cannot be written part by part: choose another ending, .gz say")
    with replacing(target) as fresh:
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
