"""Several classes by one link and Vecchia's density: one latent function per class, all with one kernel.

The bound is that of `latlin.gp.joint`, the prior of every class the sparse precision of `latlin.gp.conditionals`. Given
the stand-ins of its sites each class is a process of its own, a `VecchiaLatent`, and the slopes in the kernel add up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from latlin.gp.joint import (
    LEARNING,
    JointApproximation,
    JointLatent,
    class_posterior,
    class_rules,
    one_hot,
    stand_in_sites,
)
from latlin.gp.setting import Setting
from latlin.gp.vecchia import VecchiaFitter, VecchiaLatent, model_of
from latlin.inference.engine import Engine
from latlin.inference.forms.dense import site_form
from latlin.inference.forms.sites import cavity
from latlin.inference.gaussian_kl.per_class import fit_classes
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.class_links import CLASS_LINKS
from latlin.potentials.logit import Logit


@dataclass(frozen=True)
class JointVecchia(JointApproximation):
    """All classes in one model, by Vecchia's density; see the module."""

    name: ClassVar[str] = "vecchia"

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> JointVecchiaFitter:
        """`y` holds the numbers of the classes, 0, 1, 2, …"""
        return _of_classes(self.options.prepare(setting, X, y, engine, rng, verbose), self.link, int(y.max()) + 1)


def _of_classes(plain: VecchiaFitter, link: str, count: int) -> JointVecchiaFitter:
    parts = {one.name: getattr(plain, one.name) for one in fields(VecchiaFitter)}
    return JointVecchiaFitter(**parts, link=link, count=count)


@storable
@dataclass(frozen=True)
class JointVecchiaFitter(VecchiaFitter):
    """Training rows of several classes, with neighbours.

    Parameters
    ----------
    link : {"logit", "probit"}
    count : int
        Classes.
    """

    link: str = "logit"
    count: int = 2

    @property
    def y(self) -> Array:
        """Numbers of the classes of all rows."""
        return self.data.y

    def fit(self, setting: Setting, start: Any = None, verbose: bool = False) -> Any:
        """The posteriors of all classes at fixed parameters."""
        return self._fit(setting, start, 0.0, verbose)

    def fit_with_gradient(self, setting: Setting, start: Any = None) -> tuple[Any, Array]:
        """The same, and ∂ log evidence/∂theta."""
        latent = self._fit(setting, start, LEARNING)
        return latent, self.gradient(latent)

    def _fit(self, setting: Setting, start: Any, tol: float, verbose: bool = False) -> JointVecchiaLatent:
        began, y = time.perf_counter(), self.data.y
        given = self.hoods.conditionals(setting.kernel, setting.amplitude)
        model = model_of(setting, given, self.sites(Logit(np.ones(len(y)))))
        form, link = site_form(model), CLASS_LINKS[self.link]
        known = () if start is None or len(start.y) != len(y) else tuple(one.posterior.sites for one in start.classes)
        found = fit_classes(form, link, one_hot(y, self.count), class_rules(self.data.engine, tol), known, verbose)
        classes = []
        for k, sites in enumerate(found.sites):
            own = LatentLinearModel([model.gaussians[0], self.sites(stand_in_sites(sites, setting.mean))])
            posterior = class_posterior(link.name, own, form, found, k, time.perf_counter() - began)
            classes.append(VecchiaLatent(setting, self.hoods, given, posterior))
        return JointVecchiaLatent(tuple(classes), y, self.link)

    def gradient(self, latent: Any) -> Array:
        """The sum of the gradients of all classes."""
        return np.asarray(sum(VecchiaFitter.gradient(self, one) for one in latent.classes))

    def refined(self, latent: Any) -> JointVecchiaFitter | None:
        """All rows after some of them, and neighbours in the metric that was learnt."""
        plain = super().refined(latent)
        return None if plain is None else _of_classes(plain, self.link, self.count)


@storable
@dataclass(frozen=True)
class JointVecchiaLatent(JointLatent):
    """The latent functions of all classes by Vecchia's density; arrays have one more axis, of classes."""

    @staticmethod
    def _without_own(one: Any) -> tuple[Array, Array]:
        mean, posterior, rows = one.setting.mean, one.posterior, one.factor.H
        at = posterior if rows is None else posterior.density.project(rows)
        gamma, nu = posterior.sites
        return cavity(gamma, nu, at.mean - mean, at.variance, 1.0)[1:]
