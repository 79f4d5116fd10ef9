"""A progress bar for long work, silent unless asked for.

Work that comes in parts, such as a pass over blocks of rows, says where it stands to the bar of the loop around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
#: seconds between two drawings of a bar whose loop stands still
INTERVAL = 0.1


class Progress(Protocol):
    """What a loop says about where it stands."""

    def advance(self, text: str) -> None: ...


class _Silent:
    def advance(self, text: str) -> None:
        pass


#: no bar
SILENT: Progress = _Silent()


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar, self._drawn = bar, time.perf_counter()
        self._text, self._place, self._passes = "", "", 0

    def advance(self, text: str) -> None:
        self._text = text
        self._bar.set_postfix_str(self._status(), refresh=False)
        self._bar.update(1)

    def begin_pass(self, count: int) -> Callable[[int], None]:
        self._passes += 1
        begun = f"pass {self._passes}, block"

        def tell(done: int) -> None:
            self._place = f"{begun} {done} of {count}"
            if time.perf_counter() - self._drawn >= INTERVAL:
                self._bar.set_postfix_str(self._status())
                self._drawn = time.perf_counter()

        return tell

    def _status(self) -> str:
        return ", ".join(filter(None, (self._text, self._place)))


#: the bar of the innermost loop that shows one
_SHOWN: ContextVar[_Bar | None] = ContextVar("shown", default=None)
#: closes the bar of a beginning
_BEGUN: ContextVar[Callable[[], None]] = ContextVar("begun", default=lambda: None)


def begin_pass(count: int) -> Callable[[int], None] | None:
    """A pass over `count` blocks begins: what to tell the number of blocks that are done, or None without a bar."""
    bar = _SHOWN.get()
    return None if bar is None else bar.begin_pass(count)


def watch(items: Iterable[T], label: str, total: int | None, verbose: bool) -> Iterator[T]:
    """The items, each a step of a bar that is done when the next one is asked for.

    Examples
    --------
    >>> list(watch("ab", "letters", 2, verbose=False))
    ['a', 'b']
    """
    with progress(label, total, verbose) as bar:
        for item in items:
            yield item
            bar.advance("")


@contextmanager
def progress(label: str, total: int | None, verbose: bool) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs, if `verbose`."""
    if not verbose:
        yield SILENT
        return
    _BEGUN.get()()
    with _shown(label, total, leave=True) as (shown, _):
        yield shown


@contextmanager
def show_beginning(label: str, verbose: bool) -> Iterator[None]:
    """Show a bar while work begins, if `verbose`: the first bar of a loop within the block takes its place."""
    if not verbose:
        yield
        return
    with _shown(label, None, leave=False) as (_, bar):
        token = _BEGUN.set(bar.close)
        try:
            yield
        finally:
            _BEGUN.reset(token)


@contextmanager
def _shown(label: str, total: int | None, leave: bool) -> Iterator[tuple[_Bar, Any]]:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("verbose=True needs tqdm: install latlin[cli]") from error
    from latlin.numerics.threads import announce_compiling  # loads the compiler: when first needed

    with tqdm(total=total, desc=label, leave=leave) as bar, announce_compiling(bar.write):
        shown = _Bar(bar)
        token = _SHOWN.set(shown)
        try:
            yield shown, bar
        finally:
            _SHOWN.reset(token)
