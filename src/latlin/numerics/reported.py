"""`report`, the method by which every estimator writes its page."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar


class Reported:
    """Mixed into an estimator that `latlin.report` has a page for."""

    #: writes the page of an estimator; set by `latlin`, which stands above all rooms
    _write: ClassVar[Callable[..., None]]

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, **options: Any) -> None:
        """Write the HTML report of the fit to a file; the page needs no network.

        Parameters
        ----------
        path : path
        X, y : arrays or data frames
            The rows of the fit. An additive model keeps its table and needs neither; mixtures and factor models have
            no y.
        **options
            `title`, `folds` and the others of `latlin.report.write_report`.
        """
        type(self)._write(path, self, X, y, **options)
