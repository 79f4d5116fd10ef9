"""Tables on disk: CSV (also compressed) and Parquet, read into data frames and written all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from latlin.numerics.atomic import replacing

Frame = Any  # a pandas.DataFrame; pandas is imported where it is used
PARQUET = {".parquet", ".pq"}
SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t"}
PACKED = {".gz", ".bz2", ".xz", ".zip"}


def need_pandas() -> Any:
    """pandas, or a sentence that says what to install."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: install latlin[cli]") from error
    return pandas


def read_table(path: str | os.PathLike[str]) -> Frame:
    """The data frame of a CSV (`.csv`, `.tsv`, `.txt`, also packed as `.gz` and the like) or Parquet file."""
    pandas, source = need_pandas(), Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    ending = table_ending(source)
    try:
        frame = _read_parquet(source) if ending in PARQUET else pandas.read_csv(source, sep=SEPARATORS[ending])
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{source} cannot be read as a table: {' '.join(str(error).split())}") from error
    frame.columns = [str(name) for name in frame.columns]
    if not len(frame):
        raise ValueError(f"{source} has column names but no rows")
    return frame


def write_table(path: str | os.PathLike[str], frame: Frame) -> None:
    """Write a data frame as CSV or Parquet, by the file's ending; a failed write leaves the old file as it was."""
    ending = table_ending(Path(path))
    with replacing(path) as fresh:
        if ending in PARQUET:
            _need_pyarrow()
            frame.to_parquet(fresh, index=False)
        else:
            frame.to_csv(fresh, index=False, sep=SEPARATORS[ending])


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
        raise ValueError(f"{path} is no table by its name: it must end in one of {known}")
    return endings[-1]


def _read_parquet(source: Path) -> Frame:
    _need_pyarrow()
    return need_pandas().read_parquet(source)


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: install latlin[parquet]") from error
