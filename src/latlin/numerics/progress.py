"""A progress bar for long work, silent unless asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What a loop says about where it stands."""

    def advance(self, text: str) -> None: ...


class _Silent:
    def advance(self, text: str) -> None:
        pass


class _Bar:
    def __init__(self, bar: object) -> None:
        self._bar = bar

    def advance(self, text: str) -> None:
        self._bar.set_postfix_str(text, refresh=False)  # type: ignore[attr-defined]
        self._bar.update(1)  # type: ignore[attr-defined]


@contextmanager
def progress(label: str, total: int | None, verbose: bool) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs, if `verbose`."""
    if not verbose:
        yield _Silent()
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("verbose=True needs tqdm: install latlin[cli]") from error
    with tqdm(total=total, desc=label, leave=True) as bar:
        yield _Bar(bar)
