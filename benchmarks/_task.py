"""What a benchmark file hands to the suite: methods on cases, ready to be run in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SIZES = ("small", "full")
ROOT = Path(__file__).resolve().parents[1]
# `reproduction`, whose experiments some benchmarks time, stands beside this folder
sys.path.append(str(ROOT))
#: real sets that are too large for the repository
DATA = ROOT.parent / "shared" / "data"


def _nothing(result: Any) -> dict[str, float | str]:
    return {}


class Trial(NamedTuple):
    """Data in memory, and what is to be timed with them.

    Attributes
    ----------
    action : callable
        What is timed; called several times, so it must do all its work each time.
    judge : callable
        Accuracy of the last result, by name; not timed.
    cost : callable or None
        What is compared in place of the seconds of a call: a number made of the last result.
    flops : callable or None
        Floating-point operations of the matrix products and factorisations that the last result cannot do without; the
        page then says at which share of the machine's rate of products they were done.
    moved : callable or None
        Bytes that the last result had to read and write, likewise, for what memory bandwidth limits.
    """

    action: Callable[[], Any]
    judge: Callable[[Any], dict[str, float | str]] = _nothing
    cost: Callable[[Any], float] | None = None
    flops: Callable[[Any], float] | None = None
    moved: Callable[[Any], float] | None = None


class Task(NamedTuple):
    """One method on one case.

    Attributes
    ----------
    case, method : str
        The problem with its sizes; what is run on it. The first method of role "latlin" in a case is the one that the
        page compares with peers.
    prepare : callable
        Makes the data and the trial, in the process that runs it. Raises `FileNotFoundError` for a set that is not
        there and `ImportError` for a package.
    package : str
        The distribution whose method it is.
    role : {"latlin", "peer", "yardstick"}
        As in `_record.Record`.
    unit : str
        Of the cost.
    note : str
        A few words for the page.
    """

    case: str
    method: str
    prepare: Callable[[], Trial]
    package: str = "latlin"
    role: str = "latlin"
    unit: str = "s"
    note: str = ""


def by(method: str) -> dict[str, str]:
    """Package and role of a method whose name begins with the package's: "scikit-learn lapack" is a peer's."""
    package = method.split()[0].rstrip(",").lower()
    return {"package": package, "role": "latlin" if package == "latlin" else "peer"}
