"""What an estimator remembers of the columns of data that scikit-learn does not validate."""

from __future__ import annotations

from typing import Any

import numpy as np


def remember_columns(estimator: Any, X: Any, n_columns: int) -> None:
    """Set `n_features_in_`, and `feature_names_in_` when all columns of X have names that are text.

    Examples
    --------
    >>> class Table:
    ...     columns = ["a", "b"]
    >>> class Model:
    ...     pass
    >>> model = Model()
    >>> remember_columns(model, Table(), 2)
    >>> model.n_features_in_, model.feature_names_in_.tolist()
    (2, ['a', 'b'])
    """
    estimator.n_features_in_ = n_columns
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
