"""Draws in ArviZ's container: `InferenceData` before version 1, the `DataTree` that took its place since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latlin.numerics.arrays import Array


def inference_data(
    groups: Mapping[str, Mapping[str, Array]], coords: Mapping[str, Sequence[Any]], dims: Mapping[str, list[str]]
) -> Any:
    """Groups of arrays, whose leading axes are (chain, draw), as ArviZ holds them.

    Parameters
    ----------
    groups : dict of dicts
        "posterior", "sample_stats", "log_likelihood", "observed_data": arrays by name.
    coords : dict
        Labels of each named axis.
    dims : dict
        Names of the axes of a variable behind chain and draw.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz() needs ArviZ: pip install 'latlin[arviz]'") from error
    given: dict[str, Any] = {name: dict(group) for name, group in groups.items()}
    named: dict[str, Any] = {"coords": dict(coords), "dims": dict(dims)}
    is_one = int(getattr(arviz, "__version__", "0").partition(".")[0]) >= 1
    return arviz.from_dict(given, **named) if is_one else arviz.from_dict(**given, **named)
