"""Small real data sets: four that come with the library, two that come with scikit-learn.

| name | rows × features | target | from | licence |
|---|---|---|---|---|
| breast-cancer | 569 × 30 | benign (1) or malignant (0) | Street et al. 1993, scikit-learn | CC BY 4.0 |
| diabetes | 442 × 10 | progression after a year | Efron et al. 2004, scikit-learn | BSD-3-Clause |
| concrete | 1030 × 8 | compressive strength, MPa | Yeh 1998, UCI repository | CC BY 4.0 |
| wine | 1599 × 11 | quality, 3 … 8 (ordered) | Cortez et al. 2009, UCI repository, red wines | CC BY 4.0 |
| radon | 919 × 3 | log radon in homes of 85 counties | Gelman and Hill 2007, posteriordb | BSD-3-Clause |
| doctor-visits | 20190 × 9 | visits a year (counts) | RAND Health Insurance Experiment, statsmodels | public domain |
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.options import one_of

FILES = {
    "concrete": ("concrete_strength.csv.gz", "strength_mpa"),
    "wine": ("wine_quality_red.csv.gz", "quality"),
    "doctor-visits": ("randhie.csv.gz", "mdvis"),
    "radon": ("radon_minnesota.csv.gz", "log_radon"),
}
NAMES = ("breast-cancer", "diabetes", *FILES)


class DataSet(NamedTuple):
    """Features, target and their names."""

    X: Array
    y: Array
    feature_names: list[str]
    target_name: str

    def to_pandas(self) -> Any:
        """One data frame, the target last."""
        from latlin.datasets.table import need_pandas

        frame = need_pandas().DataFrame(self.X, columns=self.feature_names)
        frame[self.target_name] = self.y
        return frame


def load_dataset(name: str) -> DataSet:
    """One of the data sets in the table above, by name; no network.

    Examples
    --------
    >>> wine = load_dataset("wine")
    >>> wine.X.shape, wine.target_name
    ((1599, 11), 'quality')
    """
    one_of("name", name, NAMES)
    if name in FILES:
        return _bundled(*FILES[name])
    return _from_sklearn(name)


def _bundled(file: str, target: str) -> DataSet:
    with files("latlin.datasets").joinpath("data", file).open("rb") as packed:
        text = gzip.decompress(packed.read()).decode("utf8").splitlines()
    names = text[0].split(",")
    table = np.loadtxt(text[1:], delimiter=",")
    last = names.index(target)
    features = [name for name in names if name != target]
    return DataSet(np.delete(table, last, axis=1), table[:, last], features, target)


def _from_sklearn(name: str) -> DataSet:
    from sklearn import datasets

    if name == "diabetes":
        bunch: Any = datasets.load_diabetes(scaled=False)
        return DataSet(bunch.data, bunch.target, [str(n) for n in bunch.feature_names], "progression")
    bunch = datasets.load_breast_cancer()
    return DataSet(bunch.data, bunch.target.astype(float), [str(n) for n in bunch.feature_names], "benign")
