"""Group effects: intercepts and slopes that vary between groups, drawn from a common normal distribution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.additive.coding import TableCoding, coding_of
from latlin.additive.frame import Column, codes_of, join_labels, levels_of, refuse_other_kinds
from latlin.additive.places import indicator, row_products
from latlin.additive.term import (
    Part,
    PartPrior,
    PredictorRows,
    Slope,
    Surroundings,
    Term,
    Values,
    standard_deviation,
)
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.options import check_list
from latlin.numerics.stored import storable
from latlin.priors.base import Correlation

#: shape of the default prior of correlations
CORRELATION_SHAPE = 2.0


@storable
class Group(Term):
    """Effects of the labels of a column: w_g ~ N(0, Σ), one vector per label.

    Parameters
    ----------
    column : str or tuple of str
        Labels; several columns mean their combinations.
    slopes : str or tuple of str
        Columns whose coefficients vary between groups too.
    intercept : bool
        Let the intercept vary.
    correlated : bool
        Let intercept and slopes be correlated; else Σ is diagonal.
    centred : bool
        Let the effects of the seen levels sum to zero, so that the intercept is the mean of these levels instead of
        that of all possible ones.

    Examples
    --------
    >>> frame = {"g": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}
    >>> part = Group("g", slopes="x").prepare(frame, Surroundings())
    >>> part.names
    ('g[a]', 'g:x[a]', 'g[b]', 'g:x[b]')
    >>> [hyper.name for hyper in part.hyperparameters]
    ['sd(g)', 'sd(g:x)', 'cor(g)']
    """

    def __init__(
        self,
        column: str | tuple[str, ...],
        slopes: str | tuple[str, ...] = (),
        *,
        intercept: bool = True,
        correlated: bool = True,
        centred: bool = False,
    ) -> None:
        self.columns = (column,) if isinstance(column, str) else tuple(check_list("column", column, "names"))
        self.slopes = (slopes,) if isinstance(slopes, str) else tuple(check_list("slopes", slopes, "names"))
        self.intercept = intercept
        self.correlated = correlated
        self.centred = centred
        if not self.slopes and not intercept:
            raise ValueError(f"Group({column!r}) has neither an intercept nor slopes")

    def __repr__(self) -> str:
        column = self.columns[0] if len(self.columns) == 1 else self.columns
        said = [repr(column), *(["slopes=" + repr(self.slopes)] if self.slopes else [])]
        said += [] if self.intercept else ["intercept=False"]
        said += [] if self.correlated else ["correlated=False"]
        return f"Group({', '.join([*said, *(['centred=True'] if self.centred else [])])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.columns, self.slopes, self.intercept, self.correlated, self.centred))

    @property
    def label(self) -> str:
        return ":".join(self.columns)

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        levels = levels_of(join_labels(frame, self.columns), f"column {self.label!r}")
        if len(levels) < 2:
            raise ValueError(
                f"the group {self.label!r} has {len(levels)} level, and a group needs at least two: leave it out"
            )
        coding = coding_of(self.slopes, frame, self.intercept)
        Z = coding.columns(frame)
        sds = tuple(
            standard_deviation(f"sd({name})", around.unit / _size(Z[:, [k]]))
            for k, name in enumerate(self._effects(coding))
        )
        pairs = [(i, j) for i in range(len(sds)) for j in range(i)] if self.correlated else []
        correlations, products = self._correlations(coding, pairs), np.asarray((Z.T @ Z).toarray() / Z.shape[0])
        return GroupPart(self.label, self.columns, levels, coding, sds, correlations, self.centred, products)

    def _effects(self, coding: TableCoding) -> list[str]:
        return [self.label if name == "Intercept" else f"{self.label}:{name}" for name in coding.names]

    def _correlations(self, coding: TableCoding, pairs: list[tuple[int, int]]) -> tuple[Hyperparameter, ...]:
        """One per pair; beyond one pair they are partial correlations, given the effects before both."""
        support, bounds = (-1.0, 1.0), (-0.999, 0.999)
        if len(pairs) == 1:
            return (Hyperparameter(f"cor({self.label})", 0.0, Correlation(CORRELATION_SHAPE), support, bounds),)
        # the vine of Lewandowski, Kurowicka and Joe (2009): given j effects, the shape grows by half per effect after
        names = coding.names
        count = len(names)
        return tuple(
            Hyperparameter(
                f"cor({self.label}: {names[j]}, {names[i]}{' given ' * (j > 0)}{', '.join(names[:j])})",
                0.0,
                Correlation(CORRELATION_SHAPE + 0.5 * (count - 2 - j)),
                support,
                bounds,
            )
            for i, j in pairs
        )


class UnseenLabels(NamedTuple):
    """Labels of a group that were not seen in training.

    Attributes
    ----------
    rows : array of bool, of shape (n,)
        Rows that have such a label.
    labels : tuple
    meant : dict
        Seen labels by the unseen ones that differ from them in capitals and blanks only.
    """

    rows: NDArray[np.bool_]
    labels: tuple[Any, ...]
    meant: dict[Any, Any]


def _alike(label: Any) -> str:
    return "".join(str(label).split()).casefold()


@storable
@dataclass(frozen=True)
class GroupPart(Part):
    """One vector of K effects per level, levels one after the other: Q = I ⊗ Σ⁻¹."""

    label: str
    columns: tuple[str, ...]
    levels: Column
    coding: TableCoding
    sds: tuple[Hyperparameter, ...]
    correlations: tuple[Hyperparameter, ...]
    centred: bool = False
    #: mean of z zᵀ over the rows, z being one and the columns with slopes
    products: Array | None = None

    @property
    def constraint(self) -> sparse.csr_array | None:
        if not self.centred:
            return None
        L, K = len(self.levels), len(self.sds)
        return sparse.csr_array(sparse.kron(np.full((1, L), L**-0.5), sparse.eye_array(K)))

    @property
    def _free(self) -> int:
        """Levels that are not given by the others."""
        return len(self.levels) - self.centred

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the K effects of a level."""
        return tuple(self.label if n == "Intercept" else f"{self.label}:{n}" for n in self.coding.names)

    @property
    def size(self) -> int:
        return len(self.levels) * len(self.sds)

    @property
    def names(self) -> tuple[str, ...]:
        effects = self.effects
        return tuple(f"{effect}[{level}]" for level in self.levels.tolist() for effect in effects)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (*self.sds, *self.correlations)

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        labels = join_labels(frame, self.columns)
        codes = codes_of(labels, self.levels, f"column {self.label!r}")
        Z = self.coding.columns(frame)
        design = row_products(indicator(codes, len(self.levels)), Z)
        if np.all(codes >= 0):
            return PredictorRows(design)
        refuse_other_kinds(labels[codes < 0], self.levels, self.label)
        return PredictorRows(design, self._fresh(labels, Z, codes < 0, values))

    def unseen(self, frame: Any) -> UnseenLabels:
        """Rows with labels that the training rows did not have."""
        labels = join_labels(frame, self.columns)
        fresh = codes_of(labels, self.levels, f"column {self.label!r}") < 0
        known = {_alike(label): label for label in self.levels.tolist()}
        new = tuple(dict.fromkeys(labels[fresh].tolist()))
        return UnseenLabels(fresh, new, {label: known[_alike(label)] for label in new if _alike(label) in known})

    def apart(self, frame: Any, values: Values) -> PredictorRows:
        labels, Z = join_labels(frame, self.columns), self.coding.columns(frame)
        empty = sparse.csr_array((len(labels), self.size))
        return PredictorRows(empty, self._fresh(labels, Z, np.ones(len(labels), bool), values))

    def _fresh(self, labels: NDArray[Any], Z: sparse.csr_array, which: NDArray[np.bool_], values: Values) -> Any:
        """Effects of levels that are not known: rows of one level share them."""
        levels = levels_of(labels[which], f"column {self.label!r}")
        codes = np.full(len(labels), -1, dtype=np.int64)
        codes[which] = codes_of(labels[which], levels, f"column {self.label!r}")
        root = np.linalg.cholesky(self.covariance(values))
        return row_products(indicator(codes, len(levels)), sparse.csr_array(Z @ sparse.csr_array(root)))

    def variance(self, values: Values) -> float:
        """The mean of zᵀΣz over the rows: what the effects of a level add to the variance of the predictor."""
        Sigma = self.covariance(values)
        return float(np.sum(Sigma * (np.eye(len(Sigma)) if self.products is None else self.products)))

    def covariance(self, values: Values) -> Array:
        """Σ, the covariance of the effects of one level."""
        sd = np.array([values[h.name] for h in self.sds])
        C = correlation_matrix(np.array([values[h.name] for h in self.correlations]), len(sd))
        return np.asarray(sd[:, None] * C.real * sd)

    def prior(self, values: Values) -> PartPrior:
        Sigma = self.covariance(values)
        constant = -0.5 * self._free * (len(Sigma) * LOG_2PI + np.linalg.slogdet(Sigma)[1])
        return PartPrior(_repeated(np.asarray(np.linalg.inv(Sigma), float), len(self.levels)), float(constant))

    def slopes(self, values: Values) -> dict[str, Slope]:
        Sigma, L = self.covariance(values), len(self.levels)
        inverse = np.linalg.inv(Sigma)
        found = {}
        for name, turn in self._covariance_slopes(values, Sigma).items():
            # ∂Σ⁻¹ = −Σ⁻¹ ∂Σ Σ⁻¹ and ∂ log|Σ| = tr(Σ⁻¹ ∂Σ)
            half = inverse @ turn
            found[name] = Slope(_repeated(-half @ inverse, L), -0.5 * self._free * float(np.trace(half)))
        return found

    def _covariance_slopes(self, values: Values, Sigma: Array) -> dict[str, Array]:
        found = {}
        for k, hyper in enumerate(self.sds):
            turn = np.zeros_like(Sigma)
            turn[k] = Sigma[k] / values[hyper.name]
            found[hyper.name] = turn + turn.T
        sd = np.array([values[h.name] for h in self.sds])
        z = np.array([values[h.name] for h in self.correlations])
        for k, hyper in enumerate(self.correlations):
            # a complex step has no cancellation
            step = z + 1e-30j * (np.arange(len(z)) == k)
            found[hyper.name] = sd[:, None] * (correlation_matrix(step, len(sd)).imag / 1e-30) * sd
        return found


def correlation_matrix(z: NDArray[Any], count: int) -> NDArray[Any]:
    """A correlation matrix from partial correlations in the order of its lower triangle; the unit matrix from none.

    Row i of its Cholesky factor is z_i1, z_i2 √(1 − z_i1²), … (Lewandowski, Kurowicka and Joe 2009).
    """
    root = np.eye(count, dtype=z.dtype if len(z) else float)
    if not len(z):
        return root
    place = 0
    for i in range(1, count):
        rest = np.ones((), dtype=z.dtype)
        for j in range(i):
            root[i, j] = z[place] * np.sqrt(rest)
            rest = rest - root[i, j] ** 2
            place += 1
        root[i, i] = np.sqrt(rest)
    return np.asarray(root @ root.T)


def _repeated(block: Array, count: int) -> sparse.csc_array:
    """I ⊗ block."""
    size = count * len(block)
    return sparse.csc_array(
        (np.tile(block.T.ravel(), count), *_repeated_pattern(len(block), count)), shape=(size, size)
    )


@lru_cache(maxsize=8)
def _repeated_pattern(size: int, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Indices and ends of columns of I ⊗ block, not to be changed: every value of the hyperparameters asks for them."""
    rows = np.arange(count * size, dtype=np.int32).reshape(count, 1, size)
    indices = np.broadcast_to(rows, (count, size, size)).ravel()
    ends = np.arange(0, count * size * size + 1, size, dtype=np.int32)
    return indices, ends


def _size(column: sparse.csr_array) -> float:
    """The natural size of a column: its root mean square about zero."""
    return float(np.sqrt(column.multiply(column).mean())) or 1.0
