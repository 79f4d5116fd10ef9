"""Several classes by one likelihood: one latent function per class, one kernel, one link, by exact processes.

    P(y = k | x) = e^{f_k(x)} / Σ_j e^{f_j(x)}   or   P(f_k(x) + ε_k > f_j(x) + ε_j for all j ≠ k),   f_k ~ GP(0, k_θ)

The evidence is that of all labels together, a lower bound by Gaussian KL with the bounds of
`latlin.potentials.class_links`: that of Knowles and Minka (2011) for the softmax, probit sites with one more unknown
per row for the multinomial probit. Given the stand-ins of its sites each class is an exact process of its own, a
`Latent`; the gradients in the kernel add up over the classes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latlin.gp.latent import Latent, Process, prior_of
from latlin.gp.learning import AveragedProcess
from latlin.gp.setting import Setting
from latlin.inference.diagnosis.diagnose import UNKNOWN
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.dense import site_form
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import SiteParameters, cavity
from latlin.inference.gaussian_kl.per_class import ClassSitesFit, fit_classes
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.stored import storable
from latlin.potentials.class_links import CLASS_LINKS
from latlin.potentials.gaussian import Gaussian as GaussianSites
from latlin.potentials.logit import Logit

CAUTION = "this is one class of a joint fit, in which Gaussians stand for the likelihood, so that its draws say nothing"
#: smallest precision of a stand-in as a potential
FLAT = 1e-12
#: gradient of the bound up to which a fit goes on the way to the best kernel
LEARNING = 1e-4
#: steps at most of a fit of a kernel that is tried: those that end take some tens, and far out some do not end
TRIED = 100


@dataclass(frozen=True)
class Joint:
    """All classes in one model, by exact processes; see the module."""

    link: str = "logit"
    name: ClassVar[str] = "exact"

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """Every kernel is taken."""
        return ""

    def longest_product(self, n_rows: int) -> float:
        """That of a factorisation, N³/3."""
        return n_rows**3 / 3.0

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> JointFitter:
        """`y` holds the numbers of the classes, 0, 1, 2, …"""
        return JointFitter(X, y, engine, self.link)


@dataclass(frozen=True)
class JointApproximation:
    """All classes in one model, by an approximation of each process.

    Parameters
    ----------
    options : Inducing or Vecchia
        Which decides what can be done, and what it costs.
    link : {"logit", "probit"}
    """

    options: Any
    link: str = "logit"

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """What the approximation says."""
        return str(self.options.refusal(setting, n_rows, n_columns))

    def longest_product(self, n_rows: int) -> float:
        """That of the approximation."""
        return float(self.options.longest_product(n_rows))


@storable
@dataclass(frozen=True)
class JointFitter:
    """The exact posterior of all classes, by kernel parameters.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    y : ndarray of shape (n,)
        Numbers of the classes.
    engine : GaussianKL
    link : {"logit", "probit"}
    """

    X: Array
    y: Array
    engine: Any
    link: str = "logit"

    @property
    def count(self) -> int:
        """Classes."""
        return int(self.y.max()) + 1

    def fit(self, setting: Setting, start: JointLatent | None = None, verbose: bool = False) -> JointLatent:
        """The posteriors of all classes at fixed parameters."""
        return self._condition(setting, setting.prior(self.X), start, 0.0, verbose)

    def _condition(
        self, setting: Setting, K: Array, start: JointLatent | None, tol: float, verbose: bool = False
    ) -> JointLatent:
        started, (prior, jitter) = time.perf_counter(), prior_of(K, setting.mean)
        form, link = site_form(LatentLinearModel([prior, SiteFactor(None, Logit(np.ones(len(K))))])), self.link
        sites, label = () if start is None else tuple(one.sites for one in start.classes), one_hot(self.y, self.count)
        found = fit_classes(form, CLASS_LINKS[link], label, class_rules(self.engine, tol), sites, verbose)
        classes = []
        for k, one in enumerate(found.sites):
            stand_ins = stand_in_sites(one, form.mean)
            model = LatentLinearModel([prior, SiteFactor(None, stand_ins)])
            posterior = class_posterior(CLASS_LINKS[link].name, model, form, found, k, time.perf_counter() - started)
            classes.append(Latent(self.X, setting, prior.cov, jitter, stand_ins, posterior))
        return JointLatent(tuple(classes), self.y, self.link)

    def fit_with_gradient(self, setting: Setting, start: JointLatent | None = None) -> tuple[JointLatent, Array]:
        """The same, and ∂ log evidence/∂theta; the kernel is evaluated once."""
        K, slopes = setting.kernel(self.X, eval_gradient=True)
        latent = self._condition(setting, setting.amplitude**2 * K, start, LEARNING)
        return latent, _pulled(latent, slopes)

    def gradient(self, latent: JointLatent) -> Array:
        """∂ log evidence/∂theta at a latent function that `fit` gave."""
        return _pulled(latent, latent.setting.kernel(self.X, eval_gradient=True)[1])

    def refined(self, latent: JointLatent) -> None:
        """There is nothing to refine."""
        return None


def _pulled(latent: JointLatent, slopes: Array) -> Array:
    total = sum(evidence_gradient(one.posterior).gaussians[0].d_cov for one in latent.classes)
    # Σ_ij (∂ log Z/∂K_ij) ∂K_ij/∂θ
    return latent.setting.amplitude**2 * (np.ravel(total) @ slopes.reshape(-1, slopes.shape[-1]))


def one_hot(y: Array, count: int) -> Array:
    """One where a row has a class, else zero: shape (n, count)."""
    return (y[:, None] == np.arange(count)).astype(float)


def class_rules(engine: Any, tol: float) -> Rules:
    """When the ascent of all classes ends: by the engine's tolerance, or while kernels are tried by a looser one."""
    steps = min(engine.max_iter, TRIED) if tol > engine.tol else engine.max_iter
    return Rules(max(tol, engine.tol), max_iter=steps, monotone=True, remedy="give a smaller kernel variance")


def stand_in_sites(sites: SiteParameters, mean: Any) -> GaussianSites:
    """The Gaussians that stand for the sites of one class, as a potential about the prior mean."""
    precision = np.maximum(sites.gamma, FLAT)
    return GaussianSites(mean + sites.nu / precision, 1.0 / np.sqrt(precision))


def class_posterior(
    name: str, model: LatentLinearModel, form: SiteForm, found: ClassSitesFit, k: int, elapsed: float
) -> Posterior:
    """The Gaussian of a class, with the stand-ins of its sites for a model, and the evidence of all classes."""
    solution, ascent = form.solve(found.sites[k]), found.ascent
    assert solution is not None  # the ascent has been there
    return Posterior(
        model=model,
        density=form.density(solution),
        log_evidence=ascent.state.bound,
        evidence_kind="lower bound",
        engine=name,
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=elapsed,
        message=f"{name} of {len(found.sites)} classes together: {ascent.message}",
        sites=found.sites[k],
        evidence_term=ExpectedEvidence(),
        caution=(UNKNOWN, CAUTION),
    )


@storable
@dataclass(frozen=True)
class JointLatent:
    """The latent functions of all classes; arrays have one more axis, of classes.

    Parameters
    ----------
    classes : tuple of Latent
        Each given the stand-ins of its sites.
    y : ndarray of shape (n,)
        Numbers of the classes.
    link : {"logit", "probit"}
    """

    classes: tuple[Any, ...]
    y: Array
    link: str = "logit"

    @property
    def _log_probabilities(self) -> Any:
        return CLASS_LINKS[self.link].log_probabilities

    @property
    def setting(self) -> Setting:
        return self.classes[0].setting

    @property
    def posterior(self) -> Posterior:
        """Of the first class, with the evidence of all."""
        return self.classes[0].posterior

    @property
    def jitter(self) -> float:
        return self.classes[0].jitter

    def means(self, new: Array) -> Array:
        """Means at new inputs, shape (n, n_classes)."""
        return np.stack([one.means(new) for one in self.classes], axis=1)

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs, each of shape (n, n_classes)."""
        means, variances = zip(*(one.marginals(new) for one in self.classes), strict=True)
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    def covariance(self, new: Array) -> Array:
        """Covariances at new inputs, shape (n, n, n_classes)."""
        return np.stack([one.covariance(new) for one in self.classes], axis=-1)

    def log_probabilities(self, new: Array) -> Array:
        """log P(y = k) at new inputs, the latent functions integrated out; shape (n, n_classes)."""
        mean, variance = self.marginals(new)
        return self._log_probabilities(mean, np.sqrt(variance))

    def leave_one_out(self) -> Array:
        """log P(label n | all other labels): the n-th site of every class taken out of its posterior."""
        mean, variance = (np.stack(part, axis=1) for part in zip(*map(self._without_own, self.classes), strict=True))
        return self._log_probabilities(mean, np.sqrt(variance))[np.arange(len(self.y)), self.y.astype(int)]

    @staticmethod
    def _without_own(one: Any) -> tuple[Array, Array]:
        """Means and variances of a class at every row, the row's own site taken out."""
        gamma, nu = one.sites
        return cavity(gamma, nu, one.posterior.mean - one.mean, one.posterior.variance, 1.0)[1:]

    def with_posterior(self, posterior: Posterior) -> JointLatent:
        """The same with another word on its posteriors."""
        message, caution = posterior.message, posterior.caution or (UNKNOWN, CAUTION)
        each = (replace(one.posterior, message=message, caution=caution) for one in self.classes)
        return replace(self, classes=tuple(one.with_posterior(p) for one, p in zip(self.classes, each, strict=True)))


def split_by_class(process: Process | AveragedProcess) -> list[Any]:
    """The process of every class of a joint fit."""
    if isinstance(process, AveragedProcess):
        each = zip(*(split_by_class(part) for part in process.parts), strict=True)
        numbers = dict(process.numbers)
        numbers["caution"] = numbers["caution"] or (UNKNOWN, CAUTION)
        return [replace(process, parts=parts, numbers=numbers) for parts in each]
    found: Any = process.found
    return [replace(process, found=replace(found, latent=one)) for one in found.latent.classes]


def log_probabilities(process: Process | AveragedProcess, new: Array) -> Array:
    """log P(y = k) at new inputs by a joint fit, averaged over its hyperparameters where these are integrated."""
    if isinstance(process, AveragedProcess):
        each = np.stack([log_probabilities(part, new) for part in process.parts])
        return np.asarray(np.logaddexp.reduce(each + np.log(process.weights)[:, None, None], axis=0))
    latent: Any = process.found.latent
    return np.asarray(latent.log_probabilities(new))
