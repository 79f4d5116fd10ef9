"""Gaussian KL with a structured covariance of a model of blocks: the same ascent, its sums taken over blocks.

A block gives its sites' part of the bound, its gradient and a diagonal in one pass, and of a Hessian product in one
pass more (Challis (2013), §4.6.2 and B.1.2); prior, log det and the own sites are added here. For the products of
one point, blocks of this process keep three numbers a row; blocks that are elsewhere keep nothing between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.densities.structured.base import Structure
from latlin.densities.structured.diagonal import Diagonal
from latlin.densities.structured.stacked_rows import as_rows
from latlin.distributed.blocks import Block, Blocks, LocalBlocks, add
from latlin.inference.block_model import BlockModel, Reading, pieces
from latlin.inference.forms.site_curvature import SiteCurvature
from latlin.inference.forms.structured import StructuredForm
from latlin.inference.forms.structured_sites import SiteView, StructuredSites, site_precision
from latlin.inference.gaussian_kl.plans import Climber, SitePrecision, weighted_gram
from latlin.inference.gaussian_kl.structured import Objective, positive_diagonal
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class Lens:
    """How a block's sites look in the coordinates u of a structured form, w = mean + scale ∘ u."""

    reading: Reading
    mean: Array
    scale: Array

    def sites(self, block: Block, structure: Structure) -> Iterator[StructuredSites]:
        """The block's sites, a piece at a time."""
        for observed in pieces(block, self.reading):
            sites = observed.sites
            moved = sites.shifted(observed.times(self.mean)) if self.mean.any() else sites
            yield StructuredSites(as_rows(observed.rows, self.scale), moved, structure)


def slope_sums(block: Block, lens: Lens, structure: Structure, m: Array, theta: Array) -> tuple[Any, ...]:
    """Σ ⟨ψ_n⟩, its gradient and its diagonal energies in (m, θ); a value of −∞ where there is no finite one."""
    total: tuple[Any, ...] = (0.0, *(np.zeros(n) for n in (len(m), len(theta)) * 2))
    for sites in lens.sites(block, structure):
        view = sites.view(m, theta)
        if view is None:
            return (-np.inf, *total[1:])
        part = (float(view.expected.value.sum()), *sites.slopes(view), *sites.energies(view.expected.d_var))
        total = add(total, part)
    return total


def product_sums(
    block: Block, lens: Lens, structure: Structure, point: tuple[Array, Array], direction: tuple[Array, Array]
) -> tuple[Any, ...]:
    """Minus the Hessian of Σ ⟨ψ_n⟩ at (m, θ) times a direction."""
    total: tuple[Any, ...] = tuple(np.zeros(len(part)) for part in point)
    for sites in lens.sites(block, structure):
        view = _seen(sites, *point)
        total = add(total, sites.products(view.image, sites.curvature(view))(*direction))
    return total


def curvatures(block: Block, lens: Lens, structure: Structure, m: Array, theta: Array) -> list[SiteCurvature]:
    """The curvatures of a block's sites, one piece after the other."""
    return [sites.curvature(_seen(sites, m, theta)) for sites in lens.sites(block, structure)]


def kept_product_sums(
    block: Block,
    lens: Lens,
    structure: Structure,
    theta: Array,
    kept: list[list[SiteCurvature]],
    direction: tuple[Array, Array],
) -> tuple[Any, ...]:
    """As `product_sums`, with the curvatures that every block has kept."""
    total: tuple[Any, ...] = tuple(np.zeros(len(part)) for part in direction)
    for sites, curvature in zip(lens.sites(block, structure), kept[block.number], strict=True):
        total = add(total, sites.products(sites.image(theta), curvature)(*direction))
    return total


#: (blocks, lens, structure, (m, θ)) → products with a direction
Products = Callable[..., Callable[[tuple[Array, Array]], tuple[Any, ...]]]


def found_again(
    blocks: Blocks, lens: Lens, structure: Structure, point: tuple[Array, Array]
) -> Callable[[tuple[Array, Array]], tuple[Any, ...]]:
    """Products in which every pass finds the sites' curvatures, so that nothing of the length of the rows travels."""
    return lambda direction: blocks.total(product_sums, lens, structure, point, direction)


def kept_here(
    blocks: Blocks, lens: Lens, structure: Structure, point: tuple[Array, Array]
) -> Callable[[tuple[Array, Array]], tuple[Any, ...]]:
    """Products with curvatures that are found once and kept in this process."""
    kept = blocks.each(curvatures, lens, structure, *point)
    return lambda direction: blocks.total(kept_product_sums, lens, structure, point[1], kept, direction)


def _seen(sites: StructuredSites, m: Array, theta: Array) -> SiteView:
    view = sites.view(m, theta)
    assert view is not None  # the bound was finite there
    return view


def energy_sums(block: Block, lens: Lens) -> tuple[Any, ...]:
    """Diagonal of HᵀΓH with the sites' typical curvatures."""
    total = np.zeros(len(lens.scale))
    for sites in lens.sites(block, Diagonal(len(lens.scale))):
        total += sites.rows.energy(sites.sites.typical_precision())
    return (total,)


def precision_sums(block: Block, lens: Lens, m: Array, scale: Array, columns: Array) -> tuple[Any, ...]:
    """HᵀΓH times some columns, Γ at a diagonal Gaussian."""
    total = np.zeros(columns.shape)
    for sites in lens.sites(block, Diagonal(len(m))):
        gamma = site_precision(_seen(sites, m, scale).expected.d_var)
        total += sites.rows.block_transposed(gamma[:, None] * sites.rows.block_times(columns))
    return (total,)


def gram_sums(block: Block, lens: Lens, m: Array, scale: Array, chosen: NDArray[np.int64]) -> tuple[Any, ...]:
    """HᵀΓH between some coordinates, Γ at a diagonal Gaussian."""
    total = np.zeros((len(chosen),) * 2)
    for sites in lens.sites(block, Diagonal(len(m))):
        gamma = site_precision(_seen(sites, m, scale).expected.d_var)
        total += weighted_gram(sites.rows, gamma, chosen)
    return (total,)


class BlockPoint(NamedTuple):
    """A point (m, θ), the bound and its gradient there, the energies, and past L-BFGS steps."""

    point: Array
    bound: float
    gradient: Array
    energy: Array
    steps: Array
    changes: Array


@dataclass(frozen=True)
class BlockObjective:
    """The bound as a function of (m, θ): that of the own factors plus sums over blocks."""

    own: Objective
    blocks: Blocks
    lens: Lens
    log_concave: bool
    products: Products

    @property
    def concave(self) -> bool:
        return self.own.structure.concave and self.log_concave

    def evaluate(self, point: Array) -> BlockPoint | None:
        """Bound, gradient and energies at a point, or None where there is no Gaussian or no finite bound."""
        own = self.own.evaluate(point)
        if own is None:
            return None
        sums = self.blocks.total(slope_sums, self.lens, self.own.structure, *self.own.split(point))
        bound = own.bound + float(sums[0])
        if not np.isfinite(bound):
            return None
        gradient = own.gradient + np.concatenate(sums[1:3])
        energy = self.own.energy(own) + np.concatenate(sums[3:])
        empty = np.zeros((0, len(point)))
        return BlockPoint(point, bound, gradient, energy, steps=empty, changes=empty)

    def curvature(self, state: BlockPoint) -> Callable[[Array], Array]:
        """Exact products of minus the Hessian of the bound with a vector, one pass each."""
        own = self.own.evaluate(state.point)
        assert own is not None  # the bound was finite there
        central = self.own.curvature(own)
        sites = self.products(self.blocks, self.lens, self.own.structure, self.own.split(state.point))

        def product(direction: Array) -> Array:
            return central(direction) + np.concatenate(sites(self.own.split(direction)))

        return product

    def diagonal(self, state: BlockPoint) -> Array:
        """A positive diagonal near that of minus the Hessian."""
        return positive_diagonal(state.energy)


@dataclass(frozen=True)
class BlockPrecision:
    """P = prior + HᵀΓH with the curvatures at a diagonal Gaussian, one pass a product."""

    own: SitePrecision
    blocks: Blocks
    lens: Lens
    m: Array
    scale: Array
    sites_diagonal: Array

    @property
    def dim(self) -> int:
        return self.own.dim

    def diagonal(self) -> Array:
        return self.sites_diagonal

    def times(self, block: Array) -> Array:
        return self.own.times(block) + self.blocks.total(precision_sums, self.lens, self.m, self.scale, block)[0]

    def among(self, chosen: NDArray[np.int64]) -> Array:
        return self.own.among(chosen) + self.blocks.total(gram_sums, self.lens, self.m, self.scale, chosen)[0]


@dataclass(frozen=True)
class BlockClimber(Climber):
    """A `Climber` whose form is that of the own factors, with blocks of sites beside it."""

    model: BlockModel

    @property
    def lens(self) -> Lens:
        return lens_of(self.form, self.model)

    def objective(self, structure: Structure) -> BlockObjective:
        blocks = self.model.blocks
        products = kept_here if isinstance(blocks, LocalBlocks) else found_again
        return BlockObjective(Objective(self.form, structure), blocks, self.lens, self.model.log_concave, products)

    def precision(self, state: BlockPoint) -> BlockPrecision:
        m, scale = state.point[: self.form.dim], state.point[self.form.dim :]
        own = Objective(self.form, Diagonal(self.form.dim)).evaluate(state.point)
        assert own is not None  # the diagonal fit ended there
        central = SitePrecision(self.form, site_precision(own.d_var))
        return BlockPrecision(central, self.model.blocks, self.lens, m, scale, state.energy[: self.form.dim])


def lens_of(form: StructuredForm, model: BlockModel) -> Lens:
    """The blocks' sites in the coordinates of the own factors."""
    return Lens(model.reading, form.mean, form.whitening.scale)


def typical_block_scale(form: StructuredForm, model: BlockModel) -> Array:
    """Per-coordinate standard deviations when every site has its typical curvature."""
    energy = form.rows.energy(form.sites.typical_precision()) if len(form.sites) else 0.0
    return 1.0 / np.sqrt(form.prior + energy + model.blocks.total(energy_sums, lens_of(form, model))[0])
