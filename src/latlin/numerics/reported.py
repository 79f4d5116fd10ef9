"""`report`, the method by which every estimator writes its page."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


class Reported:
    """Mixed into an estimator that `latlin.report` has a page for."""

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
        # the page is made floors above, and only when it is asked for
        import_module("latlin.report").write_report(path, self, X, y, **options)
