"""The table of coefficients: mean, standard deviation, interval and probability of being positive, by feature name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from latlin.hyper.table import HyperparameterTable
from latlin.inference.posterior import Posterior
from latlin.linear._design import Design

#: most hyperparameters that are listed
MOST_LINES = 8
COLUMNS = ("mean", "sd", "low", "high", "p_positive")


class Joint(NamedTuple):
    """Whether several coefficients are all zero, or all equal, by their joint posterior.

    Attributes
    ----------
    statistic : float
        mᵀS⁻¹m of the contrasts, with their posterior mean m and covariance S.
    df : int
        Number of contrasts.
    probability : float
        Posterior probability of values less probable than zero: near 0, the coefficients are clearly not all zero.
    """

    statistic: float
    df: int
    probability: float


def joint_of(posterior: Posterior, known: Sequence[str], names: Sequence[str], equal: bool) -> Joint:
    """Of the coefficients of some features, or of their differences to the first: δᵀS⁻¹δ of a Gaussian δ is χ²."""
    listed = list(map(str, known))
    if not names or not set(names) <= set(listed):
        raise ValueError(f"names must be features of the model, got {list(names)!r}")
    places = [listed.index(name) for name in names]
    mean, covariance = posterior.mean[places], posterior.covariance()[np.ix_(places, places)]
    if equal:
        contrast = np.hstack([-np.ones((len(places) - 1, 1)), np.eye(len(places) - 1)])
        mean, covariance = contrast @ mean, contrast @ covariance @ contrast.T
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * max(values.max(), 1e-300)
    z = vectors.T[kept] @ mean / np.sqrt(values[kept])
    statistic = float(z @ z)
    return Joint(statistic, int(kept.sum()), float(chi2.sf(statistic, max(int(kept.sum()), 1))))


@dataclass(frozen=True)
class Summary:
    """Coefficients of a fitted model; prints as a table in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, low, high, p_positive of each coefficient, the intercept last.
    coverage : float
        Of the interval from low to high.
    title, footer : str
        The model, and its evidence and other learnt numbers.
    """

    rows: list[dict[str, Any]]
    coverage: float
    title: str
    footer: str

    def to_frame(self) -> Any:
        """A data frame with one row per coefficient, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: pip install 'latlin[cli]'") from error
        return pandas.DataFrame(self.rows).set_index("name")

    def to_pandas(self) -> Any:
        """The same as `to_frame`."""
        return self.to_frame()

    def _headings(self) -> tuple[str, ...]:
        low, high = 50.0 - 50.0 * self.coverage, 50.0 + 50.0 * self.coverage
        return ("mean", "sd", f"{low:g}%", f"{high:g}%", "P(>0)")

    def __repr__(self) -> str:
        width = max([len("coefficient"), *(len(row["name"]) for row in self.rows)])
        head = "coefficient".ljust(width) + "".join(f"{title:>12}" for title in self._headings())
        lines = [row["name"].ljust(width) + "".join(f"{row[c]:12.4g}" for c in COLUMNS) for row in self.rows]
        return "\n".join([self.title, head, *lines, self.footer])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in ("coefficient", *self._headings()))
        body = "".join(
            f"<tr><th scope='row'>{escape(row['name'])}</th>"
            + "".join(f"<td>{row[c]:.4g}</td>" for c in COLUMNS)
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}<br>{escape(self.footer)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def learnt_lines(table: HyperparameterTable) -> list[str]:
    """What is known of each hyperparameter, and its prior; of many only how many there are."""
    if len(table) > MOST_LINES:
        return [f"{len(table)} hyperparameters {table.manner}; see hyperparameters_"]
    lines = []
    for row in table.rows:
        spread = "" if np.isnan(row["sd"]) else f" ± {row['sd']:.2g}, 90 % in [{row['5%']:.3g}, {row['95%']:.3g}]"
        end = f", at its {row['at_bound']} end: do not use" if row["at_bound"] else ""
        lines.append(f"{row['name']} {table.manner}: {row['mean']:.3g}{spread}{end}, prior {row['prior']}")
    return lines


def coefficient_rows(
    posterior: Posterior, design: Design, names: Sequence[str], coverage: float
) -> list[dict[str, Any]]:
    """One row per coefficient, and one for the intercept at x = 0."""
    marginals = posterior.project(design.user_rows())
    labels = [*map(str, names), "intercept"][: len(marginals.mean)]
    sd = np.sqrt(np.maximum(marginals.variance, 0.0))
    if np.any(sd > 0.0):
        low, high = marginals.quantile(np.array([[0.5 - 0.5 * coverage], [0.5 + 0.5 * coverage]]))
        positive = 1.0 - marginals.cdf(np.zeros(len(sd)))
    else:
        low, high, positive = marginals.mean, marginals.mean, np.heaviside(marginals.mean, 0.5)
    columns = zip(marginals.mean, sd, low, high, positive, strict=True)
    return [{"name": n, **dict(zip(COLUMNS, map(float, c), strict=True))} for n, c in zip(labels, columns, strict=True)]
