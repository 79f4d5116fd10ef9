"""Small real data sets: four that come with the library, two that come with scikit-learn.

| name | rows × features | target | from | licence |
|---|---|---|---|---|
| breast-cancer | 569 × 30 | benign (1) or malignant (0) | Street et al. 1993, scikit-learn | CC BY 4.0 |
| diabetes | 442 × 10 | progression after a year | Efron et al. 2004, scikit-learn | BSD-3-Clause |
| concrete | 1030 × 8 | compressive strength, MPa | Yeh 1998, UCI repository | CC BY 4.0 |
| wine | 1599 × 11 | quality, 3 … 8 (ordered) | Cortez et al. 2009, UCI repository, red wines | CC BY 4.0 |
| radon | 919 × 3 | log radon in homes of 85 counties | Gelman and Hill 2007, posteriordb | BSD-3-Clause |
| doctor-visits | 20190 × 9 | visits per year (counts) | RAND Health Insurance Experiment, statsmodels | public domain |
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_choice, check_whole
from latlin.numerics.rng import RandomState, generator

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
    check_choice("name", name, NAMES)
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


# --- The logistic problems of Challis (2013), §5.2: correlated covariates, weights and labels from the model.
#
# w ~ N(0, I); covariates standard normal, mixed by the identity plus one standard normal entry per row, scaled to unit
# variance; labels y = ±1 with probability σ(y wᵀx). The text does not say whether labels are drawn from the covariates
# as they are after the scaling (here, unless given) or before it.


class LabelledRows(NamedTuple):
    """Rows and labels in {−1, +1} to learn from and to be tested on, and the weights that made the labels."""

    x: Array
    y: NDArray[np.int_]
    new_x: Array
    new_y: NDArray[np.int_]
    weights: Array


def correlated_logistic(
    dim: int, n_train: int, n_test: int, random_state: RandomState = None, labels_first: bool = False
) -> LabelledRows:
    """A problem with `dim` covariates; `labels_first` draws the labels before the covariates are scaled.

    Examples
    --------
    >>> problem = correlated_logistic(5, 20, 100, random_state=0)
    >>> problem.x.shape, problem.new_y.shape, sorted(set(problem.y.tolist()))
    ((20, 5), (100,), [-1, 1])
    """
    dim, n_train, n_test = check_whole("dim", dim, 1), check_whole("n_train", n_train, 1), check_whole("n_test", n_test)
    rng = generator(random_state)
    w = rng.standard_normal(dim)
    mixing = np.eye(dim)
    mixing[np.arange(dim), rng.integers(0, dim, dim)] += rng.standard_normal(dim)
    x = rng.standard_normal((n_train + n_test, dim)) @ mixing.T
    scale = x.std(axis=0)
    x /= scale
    logits = x @ (w * scale if labels_first else w)
    y = np.where(rng.random(n_train + n_test) < 1.0 / (1.0 + np.exp(-logits)), 1, -1)
    return LabelledRows(x[:n_train], y[:n_train], x[n_train:], y[n_train:], w)
