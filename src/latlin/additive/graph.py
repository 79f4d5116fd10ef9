"""Neighbours: a graph from an adjacency matrix, a dict of neighbours, pairs of labels, or a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from latlin.numerics.arrays import Array


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
