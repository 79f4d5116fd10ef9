"""Maps: neighbours are alike.

Besag's field (Besag, York and Mollié 1991) penalises differences between neighbours; BYM2 (Riebler and others 2016)
adds unstructured noise and divides the variance between the two by a share ρ. Both are scaled, so that sd is the
typical standard deviation of an area whatever the graph; parts of the graph that are not connected are scaled and
centred each for itself, and an area without neighbours is N(0, sd²) (Freni-Sterrantino, Ventrucci and Rue 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from latlin.additive.by import vary_field
from latlin.additive.frame import codes_of, column
from latlin.additive.intrinsic import IntrinsicPart, ScaledPrecision, scale_structure
from latlin.additive.places import FieldPlace, LabelPlace
from latlin.additive.term import (
    COEFFICIENT_SCALE,
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
from latlin.numerics.stored import storable
from latlin.priors import Beta

# --- Neighbours: a graph from an adjacency matrix, a dict of neighbours, pairs of labels, or a networkx graph.


@dataclass(frozen=True)
class Graph:
    """Labelled nodes with a symmetric matrix of weights of their edges.

    Attributes
    ----------
    labels : array of shape (n,)
    weights : sparse matrix of shape (n, n)
        Zero on the diagonal.
    """

    labels: NDArray[Any]
    weights: sparse.csr_array

    def laplacian(self) -> sparse.csc_array:
        """The precision Σ_{i~j} weight_ij (x_i − x_j)²."""
        degree = np.asarray(self.weights.sum(axis=1)).ravel()
        return sparse.csc_array(sparse.diags_array(degree) - self.weights)

    def components(self) -> tuple[int, NDArray[np.int64]]:
        """The number of connected parts, and the part of each node."""
        count, part = connected_components(self.weights, directed=False)
        return int(count), part.astype(np.int64)


def graph_of(value: Any) -> Graph:
    """A graph from what users have.

    Parameters
    ----------
    value : Graph, square matrix, dict label → neighbours, list of tuples, or networkx graph
        A matrix is dense, sparse or a data frame with labels; without labels its nodes are 0, 1, 2, …. A tuple is a
        pair of neighbours.
    """
    if isinstance(value, Graph):
        return value
    if isinstance(value, Mapping):
        return _from_edges([(a, b) for a, others in value.items() for b in others], list(value))
    if hasattr(value, "edges") and hasattr(value, "nodes"):
        return _from_edges([(edge[0], edge[1]) for edge in value.edges], list(value.nodes))
    if isinstance(value, list) and value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return _from_edges(value, [])
    return _from_matrix(value)


def _from_edges(edges: list[tuple[Any, Any]], nodes: list[Any]) -> Graph:
    place = {label: k for k, label in enumerate(dict.fromkeys([*nodes, *(end for edge in edges for end in edge)]))}
    if not place:
        raise ValueError("graph has no nodes")
    ends = np.array([(place[a], place[b]) for a, b in edges if a != b], dtype=np.int64).reshape(-1, 2)
    n = len(place)
    half = sparse.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    weights = sparse.csr_array(((half + half.T) > 0).astype(float))
    labels = np.empty(n, dtype=object)
    labels[:] = list(place)
    return Graph(_plain(labels), weights)


def _from_matrix(value: Any) -> Graph:
    labels = np.asarray(value.index) if hasattr(value, "index") and hasattr(value, "to_numpy") else None
    try:
        W = sparse.csr_array(value if sparse.issparse(value) else np.asarray(value, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"graph must be a square matrix, a dict of neighbours or a list of pairs, got {type(value).__name__}"
        ) from error
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"graph must be a square matrix, got shape {W.shape}")
    if abs(W - W.T).max() > 0 or (W.nnz and W.data.min() < 0):
        raise ValueError("graph must be a symmetric matrix of weights that are not negative")
    W = sparse.csr_array(W - sparse.diags_array(W.diagonal()), dtype=float)
    W.eliminate_zeros()
    return Graph(np.arange(W.shape[0]) if labels is None else labels, W)


def _plain(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of one kind as an array of that kind."""
    if all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in labels):
        return labels.astype(np.int64)
    return labels.astype(str).astype(object) if all(isinstance(label, str) for label in labels) else labels


def component_rows(part: NDArray[np.int64], count: int) -> Array:
    """One row per connected part with ones at its nodes."""
    return np.asarray((part == np.arange(count)[:, None]).astype(float))


@storable
@dataclass(frozen=True, eq=False)
class Besag(Term):
    """An intrinsic autoregression over the nodes of a graph.

    Parameters
    ----------
    column : str
        The label of each row's area. Areas of the graph without rows are part of the field.
    graph : optional
        Neighbours, see `AdditiveModel.fit`; without it the graph given to `fit` is used.
    by : str, optional
        A column of labels (one map per label) or of numbers (which multiply the map).

    Examples
    --------
    >>> chain = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    >>> part = Besag("area", graph=chain).prepare({"area": ["a", "c"]}, Surroundings())
    >>> part.names
    ('besag(area)[a]', 'besag(area)[b]', 'besag(area)[c]')
    """

    column: str
    graph: Any = None
    by: str | None = None

    @property
    def label(self) -> str:
        return f"besag({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        graph = _known(self, frame, around)
        return IntrinsicPart(
            self.label,
            LabelPlace(self.column, graph.labels),
            graph_structure(graph),
            np.zeros((0, len(graph.labels))),
            (),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )


@storable
@dataclass(frozen=True, eq=False)
class BYM2(Term):
    """Besag's field and unstructured noise: x = sd (√(1 − ρ) v + √ρ u), v ~ N(0, I), u Besag's field, scaled.

    Parameters
    ----------
    column : str
        The label of each row's area.
    graph : optional
        Neighbours; without it the graph given to `fit` is used.

    Examples
    --------
    >>> chain = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    >>> part = BYM2("area", graph=chain).prepare({"area": ["a", "c"]}, Surroundings())
    >>> [hyper.name for hyper in part.hyperparameters], part.size
    (['sd(bym2(area))', 'rho(bym2(area))'], 6)
    """

    column: str
    graph: Any = None

    @property
    def label(self) -> str:
        return f"bym2({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        graph = _known(self, frame, around)
        return BYM2Part(
            self.label,
            LabelPlace(self.column, graph.labels),
            graph_structure(graph),
            standard_deviation(f"sd({self.label})", around.unit),
            Hyperparameter(f"rho({self.label})", 0.5, Beta(0.5, 0.5), (0.0, 1.0), (1e-4, 1.0 - 1e-4)),
        )


@storable
@dataclass(frozen=True)
class BYM2Part(Part):
    """(x, u) with x | u ~ N(sd√ρ u, sd²(1 − ρ) I) and u ~ Besag's field: the form with a sparse precision.

    Q = [ I/(sd²(1−ρ))        −√ρ/(sd(1−ρ)) I ]
        [ −√ρ/(sd(1−ρ)) I     R + ρ/(1−ρ) I   ]
    """

    label: str
    place: FieldPlace
    structure: ScaledPrecision
    sd: Hyperparameter
    rho: Hyperparameter

    @property
    def names(self) -> tuple[str, ...]:
        areas = self.place.labels
        return (*(f"{self.label}[{a}]" for a in areas), *(f"{self.label}:spatial[{a}]" for a in areas))

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd, self.rho)

    @property
    def constraint(self) -> sparse.csr_array | None:
        null = self.structure.null
        return sparse.csr_array(sparse.hstack([sparse.csr_array(null.shape), sparse.csr_array(null)]))

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        design = self.place.rows(frame)
        return PredictorRows(sparse.csr_array(sparse.hstack([design, sparse.csr_array(design.shape)])))

    def prior(self, values: Values) -> PartPrior:
        sd, rho, n = values[self.sd.name], values[self.rho.name], self.structure.size
        rest = 1.0 - rho
        own, cross, pull = 1.0 / (sd**2 * rest), -np.sqrt(rho) / (sd * rest), rho / rest
        constant = -0.5 * n * (LOG_2PI + 2.0 * np.log(sd) + np.log(rest)) + self.structure.log_normaliser(1.0)
        return PartPrior(self._blocks(own, cross, pull, self._whole), float(constant))

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, rho, n = values[self.sd.name], values[self.rho.name], self.structure.size
        rest, root = 1.0 - rho, np.sqrt(rho)
        by_sd = self._blocks(-2.0 / (sd**3 * rest), root / (sd**2 * rest), 0.0, self._diagonal)
        # ∂/∂ρ of 1/(1−ρ), √ρ/(1−ρ) and ρ/(1−ρ)
        by_rho = self._blocks(
            1.0 / (sd**2 * rest**2), -(1.0 + rho) / (2.0 * root * rest**2 * sd), 1.0 / rest**2, self._diagonal
        )
        return {self.sd.name: Slope(by_sd, -n / sd), self.rho.name: Slope(by_rho, 0.5 * n / rest)}

    @cached_property
    def _whole(self) -> BlockPattern:
        return BlockPattern.of(self.structure.matrix)

    @cached_property
    def _diagonal(self) -> BlockPattern:
        """The pattern of slopes, in which R has no part."""
        n = self.structure.size
        return BlockPattern.of(sparse.csc_array((np.zeros(n), np.arange(n), np.arange(n + 1)), shape=(n, n)))

    @staticmethod
    def _blocks(own: float, cross: float, pull: float, pattern: BlockPattern) -> sparse.csc_array:
        """[own I, cross I; cross I, R + pull I]."""
        n, data = len(pattern.cross), pattern.data.copy()
        data[: 2 * n : 2], data[1 : 2 * n : 2] = own, cross
        data[pattern.cross] = cross
        data[pattern.own] += pull
        return sparse.csc_array((data, pattern.indices, pattern.indptr), shape=(2 * n, 2 * n))


class BlockPattern(NamedTuple):
    """[own I, cross I; cross I, R + pull I] by columns, with R alone for numbers, and where the others go.

    Attributes
    ----------
    data, indices, indptr : ndarray
        The first n columns have two entries each, own and cross.
    cross, own : ndarray of shape (n,)
        Places in the other columns of cross, and of the diagonal of R.
    """

    data: Array
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64]
    cross: NDArray[np.int64]
    own: NDArray[np.int64]

    @classmethod
    def of(cls, R: sparse.csc_array) -> BlockPattern:
        """Of an R whose diagonal is there, if with zeros."""
        R, n = R.sorted_indices(), R.shape[0]
        every = np.arange(n)
        first = np.stack([every, n + every], axis=1).ravel()
        begin = R.indptr[:-1].astype(np.int64)
        rows = np.insert(n + R.indices.astype(np.int64), begin, every)
        data = np.concatenate([np.zeros(2 * n), np.insert(R.data, begin, 0.0)])
        indptr = np.concatenate([2 * every, 2 * n + R.indptr + np.arange(n + 1)])
        column = np.repeat(every, np.diff(R.indptr) + 1)
        own = 2 * n + np.flatnonzero(rows == n + column)
        return cls(data, np.concatenate([first, rows]), indptr, 2 * n + begin + every, own)


def _known(term: Besag | BYM2, frame: Any, around: Surroundings) -> Graph:
    """The graph of a term, whose labels hold those of the table."""
    given = term.graph if term.graph is not None else around.graph
    if given is None:
        raise ValueError(f"{term.label} needs neighbours: fit(frame, graph=…) or {type(term).__name__}(…, graph=…)")
    graph = _matched(graph_of(given), column(frame, term.column))
    codes = codes_of(column(frame, term.column), graph.labels, f"column {term.column!r}")
    if np.any(codes < 0):
        missing, nodes = column(frame, term.column)[codes < 0].tolist(), graph.labels.tolist()
        raise ValueError(
            f"column {term.column!r} holds {len(set(missing))} areas that the graph does not have, such as "
            f"{missing[0]!r}; the graph has {', '.join(map(repr, nodes[:3]))}{', …' * (len(nodes) > 3)}, {nodes[-1]!r} "
            "(the nodes of a matrix are 0, 1, 2, …: a data frame with the labels as its index names them)"
        )
    return graph


def _matched(graph: Graph, values: NDArray[Any]) -> Graph:
    """Labels of the graph in the type of the table's column, where that is only a matter of spelling."""
    if values.dtype.kind in "iuf" and graph.labels.dtype.kind == "O":
        try:
            return Graph(graph.labels.astype(values.dtype), graph.weights)
        except (TypeError, ValueError):
            return graph
    return graph


def graph_structure(graph: Graph) -> ScaledPrecision:
    """The precision of the differences between neighbours, each connected part scaled for itself."""
    count, part = graph.components()
    R = graph.laplacian()
    if count == 1:
        return scale_structure(R, np.ones((1, len(graph.labels))))
    blocks, null, log_det, order = [], [], 0.0, []
    for k in range(count):
        members = np.flatnonzero(part == k)
        order.append(members)
        if len(members) == 1:
            # an area without neighbours is N(0, 1)
            blocks.append(sparse.eye_array(1, format="csc"))
            continue
        piece = scale_structure(R[members][:, members], np.ones((1, len(members))))
        blocks.append(piece.matrix)
        log_det += piece.log_determinant
        row = np.zeros(len(graph.labels))
        row[members] = piece.null[0]
        null.append(row)
    back = np.argsort(np.concatenate(order))
    matrix = sparse.csc_array(sparse.csr_array(sparse.block_diag(blocks, format="csr"))[back][:, back])
    return ScaledPrecision(matrix, np.array(null).reshape(-1, len(graph.labels)), log_det)
