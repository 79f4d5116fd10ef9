"""A fitted mixed-data model as arrays and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latlin.factor.mixed.columns import Column, Table
from latlin.factor.mixed.kernels import Sites


def plain(value: Any) -> Any:
    """A name or level as JSON knows it."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"names and levels must be text or numbers to be saved, got {value!r}")
    return value


def describe_table(table: Table) -> dict[str, Any]:
    """The columns as JSON."""
    columns = [
        {
            "name": plain(column.name),
            "kind": column.kind,
            "levels": [plain(level) for level in column.levels],
            "centre": column.centre,
            "scale": column.scale,
        }
        for column in table.columns
    ]
    return {"columns": columns, "frame": table.frame}


def read_table(described: Mapping[str, Any]) -> Table:
    """The columns from JSON."""
    columns = (Column(**{**column, "levels": tuple(column["levels"])}) for column in described["columns"])
    return Table(tuple(columns), bool(described["frame"]))


def site_arrays(sites: Sites) -> dict[str, Any]:
    """The columns' parameters by name."""
    return {f"sites_{name}": value for name, value in sites._asdict().items()}


def read_sites(arrays: Mapping[str, Any]) -> Sites:
    """The columns' parameters from an archive."""
    return Sites(*(arrays[f"sites_{name}"] for name in Sites._fields))
