"""Several classes by one link and inducing points: one latent function per class, all through the same inputs.

    f_k(x_n) = h_nᵀw_k + ε_nk,   w_k ~ N(0, I),   Var ε_nk = v_n,
    log Z ≥ Σ_n E_n − Σ_k KL(q_k ‖ N(0, I)),

E_n the bound of a link of `latlin.potentials.class_links` under the variances h_nᵀS_k h_n + v_n. It is a lower bound
on that of the exact process, and so on the probability of all labels. At the optimum its slopes in the kernel are
those of each class by itself, given the stand-ins of its sites, and add up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.distributed.blocks import LocalBlocks
from latlin.gp.inducing import LOOSE, MOST, Inducing, InducingFitter, stored_fitter, take_fitter_apart
from latlin.gp.inducing_gradient import BoundGradient, gradient_of
from latlin.gp.inducing_model import HELD, Basis, InducingFunction, fill_rows
from latlin.gp.joint import JointApproximation, JointLatent, one_hot
from latlin.gp.setting import Setting
from latlin.inference.diagnosis.diagnose import UNKNOWN
from latlin.inference.engine import Engine
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.projections import whitened_projections
from latlin.inference.forms.sites import cavity
from latlin.inference.gaussian_kl.class_rows import Classes
from latlin.inference.gaussian_kl.per_class import ClassSums, climb_classes, stand_ins_at
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import cholesky
from latlin.numerics.stored import storable, storable_as
from latlin.potentials.class_links import CLASS_LINKS

POINTS_CAUTION = (
    "this is one class of a joint fit, whose model here is that class against the rest, so that draws of it say nothing"
)


def refusal_of_joint_fit(options: Inducing, n_rows: int, in_blocks: bool) -> str:
    """Why classes cannot be fitted together, in one sentence; empty where they can."""
    if in_blocks:
        return "several classes together need rows in memory, got blocks"
    points = MOST if options.n_inducing == "auto" else int(options.n_inducing)
    if n_rows * points > HELD:
        return f"several classes together keep {n_rows} × {points} numbers in memory, more than {HELD}"
    return ""


@dataclass(frozen=True)
class JointInducing(JointApproximation):
    """All classes in one model, through inducing points; see the module."""

    name: ClassVar[str] = "inducing"

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> JointInducingFitter:
        """`y` holds the numbers of the classes, 0, 1, 2, …"""
        plain = self.options.prepare(setting, X, y, engine, rng, verbose)
        return JointInducingFitter(**{one.name: getattr(plain, one.name) for one in fields(plain)}, link=self.link)


@dataclass(frozen=True)
class JointInducingFitter(InducingFitter):
    """Rows with several classes, and inducing inputs for all of them."""

    link: str = "logit"

    @property
    def y(self) -> Array:
        """Numbers of the classes of all rows."""
        assert isinstance(self.rows, LocalBlocks)  # `refusal_of_joint_fit` refuses others
        return np.asarray(self.rows.whole.y)

    def _has_fitted(self, latent: Any, setting: Setting) -> bool:
        return super()._has_fitted(latent.classes[0], setting)

    def _curvature(self, latent: Any) -> float | None:
        each = [super(JointInducingFitter, self)._curvature(one) for one in latent.classes]
        return None if None in each else sum(one for one in each if one is not None)

    def _fit(self, setting: Setting, start: Any, tol: float, verbose: bool = False) -> Any:
        engine: Any = self.engine
        rules = Rules(max(tol, engine.tol), max_iter=engine.max_iter, monotone=True, remedy="raise max_iter")
        basis, blocks = Basis.of(setting, self.Z), self.used
        assert isinstance(blocks, LocalBlocks)  # samples are in memory, and all rows as well
        return fit_through_points(basis, blocks, self.link, int(self.y.max()) + 1, rules, start, verbose)

    def fit_with_gradient(self, setting: Setting, start: Any = None) -> Any:
        """The optimum at fixed parameters, and ∂ bound/∂theta."""
        latent = self._fit(setting, start, LOOSE)
        return latent, self.slopes(latent).theta

    def slopes(self, latent: Any) -> BoundGradient:
        """The sum of the gradients of all classes."""
        each = [gradient_of(one) for one in latent.classes]
        theta, inputs = (sum(getattr(one, name) for one in each) for name in ("theta", "inputs"))
        return BoundGradient(np.asarray(theta), np.asarray(inputs), each[0].stand_ins)


def fit_through_points(
    basis: Basis,
    blocks: LocalBlocks,
    link: str,
    count: int,
    rules: Rules,
    start: JointInducingFunction | None,
    verbose: bool,
) -> JointInducingFunction:
    """The optimum over the Gaussians of all classes at fixed parameters."""
    began, whole, white = time.perf_counter(), blocks.whole, DiagonalWhitening(np.ones(len(basis.Z)))
    rows, extra = fill_rows(basis, whole.X)
    y = np.asarray(whole.y)
    data = Classes(
        rows,
        one_hot(y, count),
        np.ones((len(y), 1)),
        np.full((len(y), count), basis.setting.mean),
        extra[:, None],
    )
    models = [_against_the_rest(basis, rows, extra, y == k) for k in range(count)]
    bound = ClassSums(CLASS_LINKS[link], data, whitened_projections(rows, white))
    first = None if start is None else bound.at(*_carried(start, basis, blocks, models))
    bound, ascent = climb_classes(bound, first or bound.at(*bound.near_mode()), rules, verbose)
    place, note = ascent.state.place, f"{CLASS_LINKS[link].name} of {count} classes together: {ascent.message}"
    classes = []
    for k, (model, sites) in enumerate(zip(models, stand_ins_at(bound, place), strict=True)):
        posterior = Posterior(
            model=model,
            density=Gaussian(place.m[k], PrecisionCovariance(white, cholesky(place.precision[k]))),
            log_evidence=ascent.state.bound,
            evidence_kind="lower bound",
            engine=CLASS_LINKS[link].name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - began,
            message=note,
            sites=sites,
            evidence_term=ExpectedEvidence(),
            caution=(UNKNOWN, POINTS_CAUTION),
        )
        classes.append(InducingFunction(basis, posterior, blocks, k, np.stack(sites)))
    return JointInducingFunction(tuple(classes), y, link)


def _against_the_rest(basis: Basis, rows: Array, extra: Array, is_one: Any) -> LatentLinearModel:
    potential = basis.setting.likelihood.template.observe(is_one.astype(float))
    sites = SiteFactor(rows, potential, offset=basis.setting.mean, extra_variance=extra)
    return LatentLinearModel([GaussianFactor(dim=len(basis.Z)), sites])


def _carried(
    start: JointInducingFunction, basis: Basis, blocks: LocalBlocks, models: list[LatentLinearModel]
) -> tuple[Array, Array]:
    """Means and precisions of all classes from a fit at other parameters, points or rows."""
    pairs = zip(start.classes, models, strict=True)
    found = [one.start_at(basis, blocks, model) or one.posterior for one, model in pairs]
    precisions = [cholesky(one.covariance()).inverse() for one in found]
    return np.stack([one.mean for one in found]), np.stack(precisions)


@storable
@dataclass(frozen=True)
class JointInducingFunction(JointLatent):
    """The latent functions of all classes through inducing points; arrays have one more axis, of classes."""

    @property
    def basis(self) -> Basis:
        """The inducing inputs, which all classes share."""
        found: Basis = self.classes[0].basis
        return found

    @staticmethod
    def _without_own(one: Any) -> tuple[Array, Array]:
        rows, posterior = one.posterior.model.sites[0], one.posterior
        x, variance = rows.H @ posterior.mean, posterior.density.structure.project(rows.H)
        gamma, nu = posterior.sites
        _, mean, left = cavity(gamma, nu, x, variance, 1.0)
        return mean + rows.offset, left + rows.extra_variance


storable_as(JointInducingFitter, take_fitter_apart, lambda **kept: JointInducingFitter(**stored_fitter(**kept)))
