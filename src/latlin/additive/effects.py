"""What a fit says of effects: coefficients, levels, curves, marginal means, differences and variance components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import betaincinv, gammaincinv, ndtr

from latlin.additive.ar1 import AR1Part
from latlin.additive.by import CopiedPart, MultipliedPart
from latlin.additive.family import ObservedResponse, ResponseFamily
from latlin.additive.fixed import FixedPart
from latlin.additive.frame import check_numbers, column, has_column, is_labelled, levels_of, n_rows
from latlin.additive.group import GroupPart
from latlin.additive.intrinsic import IntrinsicPart
from latlin.additive.places import Line, Splines
from latlin.additive.predict import PredictedComponent, PredictorMoments
from latlin.additive.smooth import SmoothPart
from latlin.additive.term import Part
from latlin.hyper.marginals import HyperparameterTable
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array

COLUMNS = ("mean", "sd", "low", "high", "p_positive")


@dataclass(frozen=True)
class Effects:
    """A table of effects; prints in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, low, high (ends of the central interval), p_positive.
    coverage : float
    title : str
    note : str
        What belongs below the table.
    columns : tuple of str
        Those that are printed.
    """

    rows: list[dict[str, Any]]
    coverage: float
    title: str = ""
    note: str = ""
    columns: tuple[str, ...] = COLUMNS

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> dict[str, Any]:
        for row in self.rows:
            if row["name"] == name:
                return row
        raise KeyError(f"no effect {name!r}; there are {', '.join(row['name'] for row in self.rows[:8])} …")

    @property
    def names(self) -> list[str]:
        return [row["name"] for row in self.rows]

    def column(self, name: str) -> Any:
        """One column as an array: "mean", "sd", "low", "high" or "p_positive"."""
        return np.array([row[name] for row in self.rows])

    def to_frame(self) -> Any:
        """A pandas data frame with one row per effect, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: pip install 'latlin[formula]'") from error
        return pandas.DataFrame(self.rows, columns=["name", *COLUMNS] if not self.rows else None).set_index("name")

    to_pandas = to_frame

    def _headings(self) -> tuple[str, ...]:
        low, high = 50.0 - 50.0 * self.coverage, 50.0 + 50.0 * self.coverage
        said = {"low": f"{low:g}%", "high": f"{high:g}%", "p_positive": "P(>0)"}
        return tuple(said.get(column, column) for column in self.columns)

    def __repr__(self) -> str:
        width = max([len("effect"), *(len(row["name"]) for row in self.rows)])
        head = "effect".ljust(width) + "".join(f"{title:>11}" for title in self._headings())
        lines = [row["name"].ljust(width) + "".join(f"{_shown(row, c):>11}" for c in self.columns) for row in self.rows]
        return "\n".join([part for part in (self.title, head, *lines, self.note) if part])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in ("effect", *self._headings()))
        body = "".join(
            f"<tr><th scope='row'>{escape(row['name'])}</th>"
            + "".join(f"<td>{_shown(row, c)}</td>" for c in self.columns)
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}</caption>"
        note = f"<pre>{escape(self.note)}</pre>" if self.note else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _shown(row: dict[str, Any], column: str) -> str:
    """A number of a table; of a probability four decimals, since the rest is rounding."""
    value = row[column]
    return f"{round(value, 4) if column == 'p_positive' else value:.4g}"


def effects_of(
    posterior: Posterior, rows: sparse.csr_array, names: list[str], coverage: float, title: str = "", note: str = ""
) -> Effects:
    """Linear functions of the coefficients, one row each."""
    if not names:
        return Effects([], coverage, title, note)
    at = posterior.project(rows)
    sd = np.sqrt(np.maximum(at.variance, 0.0))
    mean = np.asarray(at.mean)
    low, high, positive = mean.copy(), mean.copy(), np.heaviside(mean, 0.5)
    known = np.flatnonzero(sd > 0.0)
    if len(known):
        ends = np.asarray(at.quantile(np.array([[0.5 - 0.5 * coverage], [0.5 + 0.5 * coverage]])))
        low[known], high[known] = ends[0][known], ends[1][known]
        positive[known] = np.clip(1.0 - np.asarray(at.cdf(np.zeros(len(sd))))[known], 0.0, 1.0)
    columns = zip(mean, sd, low, high, positive, strict=True)
    table = [{"name": n, **dict(zip(COLUMNS, map(float, c), strict=True))} for n, c in zip(names, columns, strict=True)]
    return Effects(table, coverage, title, note)


def differences_of(rows: sparse.csr_array, names: list[str], kinds: int = 1) -> tuple[sparse.csr_array, list[str]]:
    """Rows of all pairwise differences, later less earlier; of effects of several kinds by turns, within each kind.

    >>> differences_of(sparse.csr_array(np.eye(3)), ["a", "b", "c"])[1]
    ['b - a', 'c - a', 'c - b']
    >>> differences_of(sparse.csr_array(np.eye(4)), ["g[1]", "g:x[1]", "g[2]", "g:x[2]"], kinds=2)[1]
    ['g[2] - g[1]', 'g:x[2] - g:x[1]']
    """
    later, earlier = np.tril_indices(len(names), -1)
    alike = (later - earlier) % kinds == 0
    later, earlier = later[alike], earlier[alike]
    pairs = [f"{names[i]} - {names[j]}" for i, j in zip(later, earlier, strict=True)]
    return sparse.csr_array(rows[later] - rows[earlier]), pairs


def check_coverage(coverage: float) -> float:
    """The probability that an interval holds."""
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0.0 < float(coverage) < 1.0:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}")
    return float(coverage)


# --- Terms along a line: where to look at them, and the rows that say their value there.


def curve_rows(part: Part, points: int, level: Any = None) -> tuple[Array, sparse.csr_array]:
    """Places along a term's column, and rows over its coefficients; of one label where each has a curve."""
    if isinstance(part, MultipliedPart):
        return curve_rows(part.part, points, level)
    if isinstance(part, CopiedPart):
        known = part.levels.tolist()
        if level not in known:
            raise ValueError(f"{part.label} has a curve per label: level must be one of {known[:8]}, got {level!r}")
        x, rows = curve_rows(part.part, points)
        own = sparse.csr_array(([1.0], ([0], [known.index(level)])), shape=(1, len(known)))
        return x, sparse.csr_array(sparse.kron(own, rows, format="csr"))
    if level is not None:
        raise ValueError(f"{part.label} has one curve for all rows: level={level!r} is for terms with by=")
    if isinstance(part, IntrinsicPart) and isinstance(part.place, Splines):
        x = np.linspace(part.place.low, part.place.high, points)
        return x, part.with_trends(part.place.weights(x))
    if isinstance(part, IntrinsicPart) and isinstance(part.place, Line):
        return part.place.nodes, part.with_trends(part.place.weights(part.place.nodes))
    if isinstance(part, AR1Part):
        return part.place.nodes, part.place.weights(part.place.nodes)
    if isinstance(part, SmoothPart):
        return part.nodes, sparse.csr_array(sparse.eye_array(part.size, format="csr")[:: part.states])
    raise ValueError(f"{part.label} has no curve: it is not a function of one column; effects() has its levels")


# --- Marginal means: the average of the linear part over the rows of a table with one column set to a value.


#: probabilities of the quantiles at which a column of numbers is set
SPOTS = (0.05, 0.25, 0.5, 0.75, 0.95)


def marginal_rows(name: str, frame: Any, parts: tuple[Part, ...]) -> tuple[sparse.csr_array, list[str]] | None:
    """Rows over the coefficients of the first part, one per value of the column; None if it does not depend on it."""
    fixed = parts[0]
    if not isinstance(fixed, FixedPart) or not has_column(frame, name):
        return None
    values, labelled = column(frame, name), _labelled(frame, name)
    spots = levels_of(values, f"column {name!r}") if labelled else np.quantile(check_numbers(values, name), SPOTS)
    rows, names = [], []
    for spot in np.unique(spots):
        table = _Changed(frame, name, np.full(n_rows(frame), spot))
        rows.append(np.asarray(fixed.rows(table, {}).design.mean(axis=0)).ravel())
        names.append(f"{name}[{spot:.4g}]" if isinstance(spot, float) else f"{name}[{spot}]")
    found = np.array(rows)
    if len(found) > 1 and not np.any(np.ptp(found, axis=0)):
        return None
    return sparse.csr_array(found), names


def _labelled(frame: Any, name: str) -> bool:
    """Labels, or numbers with so few values that they may be labels."""
    values = column(frame, name)
    return is_labelled(frame, name) or (values.dtype.kind in "iu" and len(np.unique(values)) <= 12)


class _Changed:
    """A table with one column in place of its own."""

    def __init__(self, frame: Any, name: str, values: NDArray[Any]) -> None:
        self._frame, self._name, self._values = frame, name, values
        self.columns = list(frame.columns) if hasattr(frame, "columns") else list(frame)

    def __getitem__(self, name: str) -> Any:
        return self._values if name == self._name else self._frame[name]


# --- Variance components and their shares, and quantiles of mixtures of normals.


COMPONENT_COLUMNS = ("mean", "sd", "low", "high")


def variance_components(
    fits: Sequence[PredictedComponent],
    parts: tuple[Part, ...],
    family: ResponseFamily,
    mean: float,
    coverage: float,
    learnt: HyperparameterTable,
) -> Effects:
    """Variances by name, correlations, then the shares of terms in the total: slopes count with their group.

    A variance has the interval of its standard deviation, squared; what has no marginal density of its own that of a
    gamma or a beta density with its mean and standard deviation.
    """
    share = np.array([fit.share for fit in fits])
    table = [_variances(fit.values, parts, family, mean) for fit in fits]
    added = [{**_added(fit.values, parts, row), **_rest(row)} for fit, row in zip(fits, table, strict=True)]
    columns = {f"var({n})": np.array([row[n] for row in table]) for n in table[0]} | _correlations(fits, parts)
    columns |= {f"share({n})": np.array([row[n] / sum(row.values()) for row in added]) for n in added[0]}
    marginals = learnt.marginals if learnt.manner == "integrated" else {}
    known = _intervals(parts, family, marginals, 0.5 + 0.5 * coverage * np.array([-1.0, 1.0]))
    rows = [_weighted(name, column, share, coverage, known.get(name)) for name, column in columns.items()]
    return Effects(rows, coverage, "variance components", columns=COMPONENT_COLUMNS)


def share_of_group(
    fits: Sequence[PredictedComponent], parts: tuple[Part, ...], family: ResponseFamily, mean: float, group: str
) -> float:
    """The mean share of a group in the variance of groups and noise; fields are no part of it, nor are coefficients."""
    total = 0.0
    for fit in fits:
        added = {part.label: part.variance(fit.values) for part in parts if isinstance(part, GroupPart)}
        rest = _rest(_variances(fit.values, parts, family, mean))
        total += fit.share * added[group] / sum((added | rest).values())
    return total


def _correlations(fits: Sequence[PredictedComponent], parts: tuple[Part, ...]) -> dict[str, Array]:
    """Correlations of the effects of one level, by name; hyperparameters of more than two effects are partial ones."""
    found = {}
    for part in parts:
        if isinstance(part, GroupPart) and part.correlations:
            tables = np.array([part.covariance(fit.values) for fit in fits])
            sd = np.sqrt(np.diagonal(tables, axis1=1, axis2=2))
            for i, j in zip(*np.tril_indices(len(part.effects), -1), strict=True):
                found[f"cor({part.effects[j]}, {part.effects[i]})"] = tables[:, i, j] / (sd[:, i] * sd[:, j])
    return found


def _variances(
    values: dict[str, float], parts: tuple[Part, ...], family: ResponseFamily, mean: float
) -> dict[str, float]:
    found = {}
    for part in parts:
        if isinstance(part, GroupPart):
            for effect, sd in zip(part.effects, part.sds, strict=True):
                found[effect] = values[sd.name] ** 2
        else:
            for hyper in part.hyperparameters:
                if hyper.name.startswith("sd("):
                    found[part.label] = values[hyper.name] ** 2
    if "sigma" in values or family.link != "identity":
        found["residual"] = family.latent_variance(values, max(mean, 1e-3))
    return found


def _added(values: dict[str, float], parts: tuple[Part, ...], variances: dict[str, float]) -> dict[str, float]:
    """What each term adds to the variance of the predictor, averaged over the rows."""
    return {
        part.label: part.variance(values) if isinstance(part, GroupPart) else variances[part.label]
        for part in parts
        if isinstance(part, GroupPart) or part.label in variances
    }


def _rest(variances: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in variances.items() if name == "residual"}


def _intervals(
    parts: tuple[Part, ...], family: ResponseFamily, marginals: Mapping[str, Any], levels: Array
) -> dict[str, Array]:
    """Ends of the intervals of variances and correlations that are functions of one hyperparameter, by name."""
    sds = {"residual": "sigma"} if family.template.gaussian and family.link == "identity" else {}
    found = {}
    for part in parts:
        if isinstance(part, GroupPart):
            sds |= {effect: sd.name for effect, sd in zip(part.effects, part.sds, strict=True)}
            if len(part.correlations) == 1 and part.correlations[0].name in marginals:
                ends = marginals[part.correlations[0].name].quantile(levels)
                found[f"cor({part.effects[0]}, {part.effects[1]})"] = ends
        else:
            own = [hyper.name for hyper in part.hyperparameters if hyper.name.startswith("sd(")]
            sds |= {part.label: own[0]} if own else {}
    return found | {f"var({n})": marginals[sd].quantile(levels) ** 2 for n, sd in sds.items() if sd in marginals}


def _weighted(name: str, values: Array, share: Array, coverage: float, ends: Array | None) -> dict[str, float | str]:
    """Mean, sd and interval of numbers with weights; of shares and correlations by a beta density, else by a gamma."""
    mean = float(share @ values)
    sd = float(np.sqrt(max(float(share @ (values - mean) ** 2), 0.0)))
    if sd <= 1e-12 * abs(mean):
        ends = np.array([mean, mean])
    elif ends is None:
        levels = 0.5 + 0.5 * coverage * np.array([-1.0, 1.0])
        if name.startswith("var("):
            ends = gammaincinv((mean / sd) ** 2, levels) * sd**2 / mean
        else:
            low = -1.0 if name.startswith("cor(") else 0.0
            middle, spread = (mean - low) / (1.0 - low), sd / (1.0 - low)
            count = max(middle * (1.0 - middle) / spread**2 - 1.0, 1e-3)
            ends = low + (1.0 - low) * betaincinv(middle * count, (1.0 - middle) * count, levels)
    return {"name": name, "mean": mean, "sd": sd, "low": float(ends[0]), "high": float(ends[1])}


def gaussian_quantiles(
    parts: Sequence[PredictorMoments], family: ResponseFamily, rows: ObservedResponse, q: Array
) -> Array:
    """Quantiles of new Gaussian observations, of shape (len(q), rows), by bisection of a mixture of normals."""
    spread = [
        np.sqrt(family.potential(rows, part.values).predictive(part.mean, part.variance).variance) for part in parts
    ]
    reach = 9.0
    low = np.min([p.mean - reach * s for p, s in zip(parts, spread, strict=True)], axis=0) + np.zeros((len(q), 1))
    high = np.max([p.mean + reach * s for p, s in zip(parts, spread, strict=True)], axis=0) + np.zeros((len(q), 1))
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = sum(p.share * ndtr((middle - p.mean) / s) for p, s in zip(parts, spread, strict=True)) < q[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
