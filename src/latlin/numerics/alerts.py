"""The warnings of the library. A test run turns them into errors."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it met its tolerance; the text has the numbers and a remedy."""


class MonotonicityWarning(RuntimeWarning):
    """A bound that is promised to rise has fallen by more than rounding explains."""


class NumericalWarning(RuntimeWarning):
    """A matrix had to be changed to be factorised; the text says by how much."""


class MisfitWarning(UserWarning):
    """The family of a likelihood does not describe the observations; the text has the numbers and a remedy."""


def alert(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the first line outside the library that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("latlin."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def ignore_convergence_warnings() -> Iterator[None]:
    """Without warnings of convergence: for rough fits on the way to a better one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
