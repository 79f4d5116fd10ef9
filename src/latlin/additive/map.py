"""A Matérn field in the plane on a triangulation (Lindgren, Rue and Lindström 2011).

With piecewise linear functions on triangles, C their (lumped) mass matrix and G their stiffness matrix, the field of
range r and standard deviation sd has the sparse precision

    Q = τ² (κ²C + G) C⁻¹ (κ²C + G),   κ = √8/r,   τ² = 1/(4π κ² sd²).

No mesh is made here: give the nodes and triangles of one, for example of scipy.spatial.Delaunay.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.spatial import cKDTree

from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import factorise_definite, pack_matrix, unpack_matrix
from latlin.additive.places import FieldPlace
from latlin.additive.term import (
    Part,
    PartPrior,
    PredictorRows,
    Slope,
    Surroundings,
    Term,
    Values,
    scaled_slope,
    standard_deviation,
)
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.stored import storable, storable_as
from latlin.priors import InverseGamma

#: nodes up to which the determinant comes from eigenvalues
DENSE = 1500
#: triangles near a point that are tried before all others
NEAR = 12


@storable
@dataclass(frozen=True, eq=False)
class Map(Term):
    """A smooth field over two coordinates.

    Parameters
    ----------
    x, y : str
        Columns with the coordinates of each row.
    nodes : array of shape (n, 2)
    triangles : int array of shape (m, 3)
        Nodes of each triangle.
    mass, stiffness : optional
        C (its diagonal, or a matrix whose row sums are taken) and G, where they were computed elsewhere.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> mesh = Map("lon", "lat", corners, np.array([[0, 1, 2], [1, 3, 2]]))
    >>> part = mesh.prepare({"lon": [0.5], "lat": [0.5]}, Surroundings())
    >>> part.rows({"lon": [0.25], "lat": [0.25]}, {}).design.toarray()
    array([[0.5 , 0.25, 0.25, 0.  ]])
    """

    x: str
    y: str
    nodes: Array
    triangles: NDArray[np.int64]
    mass: Any = None
    stiffness: Any = None

    @property
    def label(self) -> str:
        return f"map({self.x}, {self.y})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        nodes, triangles = np.asarray(self.nodes, float), np.asarray(self.triangles)
        if nodes.ndim != 2 or nodes.shape[1] != 2 or triangles.ndim != 2 or triangles.shape[1] != 3:
            raise ValueError(
                f"a Map needs nodes of shape (n, 2) and triangles of shape (m, 3), got {nodes.shape}, {triangles.shape}"
            )
        C, G = finite_elements(nodes, triangles.astype(np.int64))
        if self.mass is not None:
            given = self.mass
            C = np.asarray(given.sum(axis=1) if np.ndim(given) == 2 or sparse.issparse(given) else given, float).ravel()
        if self.stiffness is not None:
            G = sparse.csc_array(self.stiffness)
        if C.shape != (len(nodes),) or G.shape != (len(nodes), len(nodes)) or np.any(C <= 0.0):
            raise ValueError(f"mass and stiffness must be of {len(nodes)} nodes, with a positive mass for each")
        width = float(np.ptp(nodes, axis=0).max())
        place = Triangles(self.x, self.y, nodes, triangles.astype(np.int64))
        place.rows(frame)
        root = 1.0 / np.sqrt(C)
        spectrum = linalg.eigvalsh(root[:, None] * G.toarray() * root) if len(nodes) <= DENSE else None
        return MapPart(
            self.label,
            place,
            C,
            G,
            np.maximum(spectrum, 0.0) if spectrum is not None else np.zeros(0),
            standard_deviation(f"sd({self.label})", around.unit),
            Hyperparameter(
                f"range({self.label})",
                0.3 * width,
                InverseGamma(1.5, 0.4 * width),
                bounds=(1e-2 * width, 20.0 * width),
            ),
        )


@dataclass(frozen=True)
class MapPart(Part):
    """A field on the nodes of a triangulation.

    Attributes
    ----------
    mass, stiffness : C (its diagonal) and G
    spectrum : array
        Eigenvalues of C^{−½}GC^{−½}: the determinant at any range. Empty for large meshes, which are factorised.
    """

    label: str
    place: FieldPlace
    mass: Array
    stiffness: sparse.csc_array
    spectrum: Array
    sd: Hyperparameter
    range: Hyperparameter

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.label}[{node}]" for node in self.place.labels)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd, self.range)

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        return PredictorRows(self.place.rows(frame))

    def _log_determinant(self, k2: float) -> tuple[float, float]:
        """log|κ²C + G| and its derivative in κ², by eigenvalues or a sparse factorisation."""
        if len(self.spectrum):
            return float(np.sum(np.log(k2 + self.spectrum)) + np.sum(np.log(self.mass))), float(
                np.sum(1.0 / (k2 + self.spectrum))
            )
        C = sparse.csc_array(sparse.diags_array(self.mass))
        factor = factorise_definite(sparse.csc_array(k2 * C + self.stiffness))
        return factor.log_det, float(factor.inverse_diagonal @ self.mass)

    def prior(self, values: Values) -> PartPrior:
        sd, k2, n = values[self.sd.name], 8.0 / values[self.range.name] ** 2, len(self.mass)
        tau2 = 1.0 / (4.0 * np.pi * k2 * sd**2)
        K = sparse.csc_array(k2 * sparse.diags_array(self.mass) + self.stiffness)
        precision = tau2 * (K @ sparse.diags_array(1.0 / self.mass) @ K)
        log_det = n * np.log(tau2) + 2.0 * self._log_determinant(k2)[0] - np.sum(np.log(self.mass))
        return PartPrior(sparse.csc_array(precision), float(0.5 * log_det - 0.5 * n * LOG_2PI))

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, r, n = values[self.sd.name], values[self.range.name], len(self.mass)
        k2 = 8.0 / r**2
        tau2 = 1.0 / (4.0 * np.pi * k2 * sd**2)
        prior = self.prior(values)
        K = sparse.csc_array(k2 * sparse.diags_array(self.mass) + self.stiffness)
        # ∂/∂κ²: τ² falls as 1/κ², and ∂(KC⁻¹K) = 2K
        by_k2 = 2.0 * tau2 * K - prior.precision / k2
        constant = -0.5 * n / k2 + self._log_determinant(k2)[1]
        turn = -2.0 * k2 / r
        return {
            self.sd.name: scaled_slope(prior, n, sd),
            self.range.name: Slope(sparse.csc_array(by_k2 * turn), float(constant * turn)),
        }


storable_as(
    MapPart,
    lambda part: {**{f.name: getattr(part, f.name) for f in fields(part)}, "stiffness": pack_matrix(part.stiffness)},
    lambda stiffness, **rest: MapPart(stiffness=unpack_matrix(**stiffness), **rest),
)


@storable
@dataclass(frozen=True)
class Triangles(FieldPlace):
    """Points in the triangles of a mesh: weights are barycentric coordinates."""

    x: str
    y: str
    nodes: Array
    triangles: NDArray[np.int64]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.nodes))))

    def rows(self, frame: Any) -> sparse.csr_array:
        points = np.column_stack([evaluate(self.x, frame), evaluate(self.y, frame)])
        corners = self.nodes[self.triangles]
        _, near = cKDTree(corners.mean(axis=1)).query(points, k=min(NEAR, len(corners)))
        found, weights = _locate(points, corners, near.reshape(len(points), -1))
        lost = np.flatnonzero(found < 0)
        if len(lost):
            everything = np.broadcast_to(np.arange(len(corners)), (len(lost), len(corners)))
            found[lost], weights[lost] = _locate(points[lost], corners, everything)
        if np.any(found < 0):
            bad = points[found < 0]
            raise ValueError(
                f"{len(bad)} rows lie outside the triangles, such as {self.x}={bad[0, 0]:g}, {self.y}={bad[0, 1]:g}"
            )
        row = np.arange(len(points)).repeat(3)
        table = (weights.ravel(), (row, self.triangles[found].ravel()))
        return sparse.csr_array(table, shape=(len(points), len(self.nodes)))


def _locate(points: Array, corners: Array, candidates: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """The first candidate triangle that holds each point (−1: none), and the weights of its corners."""
    found, weights = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 3))
    for column in candidates.T:
        left = np.flatnonzero(found < 0)
        if not len(left):
            break
        tried = corners[column[left]]
        sides = np.swapaxes(tried[:, 1:] - tried[:, :1], 1, 2)
        inner = np.linalg.solve(sides, (points[left] - tried[:, 0])[:, :, None])[:, :, 0]
        share = np.column_stack([1.0 - inner.sum(axis=1), inner])
        inside = np.all(share >= -1e-9, axis=1)
        found[left[inside]], weights[left[inside]] = column[left[inside]], np.maximum(share[inside], 0.0)
    return found, weights


def finite_elements(nodes: Array, triangles: NDArray[np.int64]) -> tuple[Array, sparse.csc_array]:
    """The lumped mass and the stiffness matrix of piecewise linear functions."""
    corners = nodes[triangles]
    # the side opposite to each corner
    sides = np.stack(
        [corners[:, 2] - corners[:, 1], corners[:, 0] - corners[:, 2], corners[:, 1] - corners[:, 0]], axis=1
    )
    area = 0.5 * np.abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0])
    if np.any(area <= 0.0):
        raise ValueError(f"triangle {int(np.argmin(area))} of the mesh has no area")
    mass = np.bincount(triangles.ravel(), weights=(area / 3.0).repeat(3), minlength=len(nodes))
    local = sides @ np.swapaxes(sides, 1, 2) / (4.0 * area)[:, None, None]
    row, column = triangles.repeat(3, axis=1).ravel(), np.tile(triangles, 3).ravel()
    return mass.astype(float), sparse.csc_array((local.ravel(), (row, column)), shape=(len(nodes), len(nodes)))
