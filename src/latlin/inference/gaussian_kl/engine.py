"""Gaussian KL: the Gaussian closest to the posterior in KL(q‖p), with a lower bound on the log evidence.

Challis (2013), chapter 4. The covariance is an object of `latlin.covariances`, or its name.
"""

from __future__ import annotations

import os
import time
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.base import StructuredCovariance
from latlin.densities.structured.rows import use_one_pool
from latlin.inference.engine import LOCAL, checkpoint_for
from latlin.inference.estimated import fit_estimated, refuse_estimated_checkpoint
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl.climber import (
    Climber,
    CovarianceOption,
    fit_from_starts,
    inherit_moments,
    structured_starts,
)
from latlin.inference.gaussian_kl.covariances import (
    Banded,
    Chevron,
    Diagonal,
    Estimated,
    Full,
    LowRank,
    Sparse,
)
from latlin.inference.gaussian_kl.full import ALGORITHMS, FullTask, choose_algorithm
from latlin.inference.gaussian_kl.split import MOST_COMPONENTS, SPLIT_TOL, join_parts, split
from latlin.inference.gaussian_kl.subspace import Subspace
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ignore_convergence_warnings
from latlin.numerics.ascent import Rules
from latlin.numerics.options import check_choice, check_whole
from latlin.numerics.stored import storable_by_arguments

#: covariances that have a name, and the options that may stand beside it
NAMED = (Full, Estimated, Diagonal, Banded, Chevron, Sparse, Subspace, LowRank)
OPTIONS = ("rank", "bandwidth", "order", "pattern", "basis", "inner")
#: largest relative change of the bound at convergence, in units of `tol`
STILL = 1e-3
PROBED = "; squares of H were estimated by random signs (give the operator an attribute `squares`), so this is no bound"
REMEDY = "raise max_iter, rescale the columns of H, or start from another posterior"


@storable_by_arguments
@dataclass(frozen=True)
class GaussianKL:
    """The Gaussian that maximises the lower bound on log Z.

    Parameters
    ----------
    covariance : str or an object of `latlin.covariances`
        Shape of S = CᵀC: "full", "diagonal", "banded", "chevron", "sparse", "subspace", "low-rank", or an object with
        its options, such as `Chevron(rank=50)`. All but "full" act in the model's own coordinates and form nothing of
        size N×D or D×D. "estimated" is "full" for sparse models whose Cholesky factor would fill: nothing is
        factorised, variances and the log determinant are estimated by random probes, and the evidence is an
        approximation with a standard error.
    rank, bandwidth, order, pattern, basis, inner : optional
        The options of a covariance that is given by its name.
    probes : int
        Random sign vectors: for the estimates of an "estimated" covariance, and in place of the squares of a
        LinearOperator H without an attribute `squares`.
    tol : float
        Largest absolute gradient entry of the bound, in coordinates whitened by the prior, at convergence.
    max_iter : int
        Steps at most (20 times as many for quasi-Newton steps, which serve where the bound is not concave).
    components : int
        Gaussians of a mixture: the space is divided by so many soft gates less one, and each part has a Gaussian of its
        own. More components never give a lower bound, at some hundred fits per component.
    algorithm : {"auto", "sites", "sums"}
        How a full covariance is fitted. "sites" keeps two numbers for each site; "sums" keeps nothing per row, as on
        blocks of rows, whatever the blocks. "auto" is "sums" for log-concave sites on at least 40 rows per dimension,
        with "sites" to fall back on, and "sites" for other models.

    Notes
    -----
    With log-concave sites the optimum is unique and the ascent starts at the Laplace approximation; otherwise it starts
    from several places, keeps the best and says that the optimum may be local. With Gaussian sites the result is exact.
    """

    name: ClassVar[str] = "gkl"
    covariance: str | Full | Estimated | CovarianceOption = "full"
    rank: int | None = None
    bandwidth: int | None = None
    order: Any = None
    pattern: Any = None
    basis: Any = None
    inner: str | None = None
    probes: int = 64
    tol: float = 1e-6
    max_iter: int = 300
    algorithm: str = "auto"
    components: int = 1

    def __post_init__(self) -> None:
        structure = self.structure
        check_whole("components", self.components, 1, MOST_COMPONENTS)
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        if not isinstance(structure, Full) and self.algorithm != "auto":
            raise ValueError(f"algorithm={self.algorithm!r} has no meaning for covariance={structure.name!r}")

    @property
    def structure(self) -> Full | Estimated | CovarianceOption:
        """The covariance as an object with its options."""
        options = {name: getattr(self, name) for name in OPTIONS}
        if isinstance(self.covariance, str):
            return name_covariance(self.covariance, options)
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise ValueError(f"{given[0]} is for a covariance that is given by its name, got {self.covariance!r}")
        if not isinstance(self.covariance, Full | Estimated) and not callable(getattr(self.covariance, "fit", None)):
            raise ValueError(f"covariance must be a name or an object of latlin.covariances, got {self.covariance!r}")
        return self.covariance

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        if self.components > 1:
            return self._run_split(require_in_memory(model, self.name), start, verbose, checkpoint)
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        # a rough fit need not wait for the last digits of its bound either
        rules = replace(rules, objective_tol=max(rules.objective_tol, STILL * self.tol))
        task = FullTask(model, start, rules, verbose, checkpoint_for(checkpoint, model, self))
        structure = self.structure
        if isinstance(structure, Estimated):
            refuse_estimated_checkpoint(checkpoint)
            return fit_estimated(self, require_in_memory(model, self.name), start, rules, verbose, averaged=True)
        return self._run_full(task) if isinstance(structure, Full) else self._run_structured(structure, task)

    def _run_full(self, task: FullTask) -> Posterior:
        started, model = time.perf_counter(), task.model
        ascent, density, bound, sites = choose_algorithm(self.algorithm, model).fit(task)
        return Posterior(
            model=model,
            density=density,
            log_evidence=bound,
            evidence_kind="exact" if model.gaussian else "lower bound",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + ("" if model.log_concave else LOCAL),
            sites=sites,
            evidence_term=ExpectedEvidence(),
        )

    def _run_split(
        self,
        model: LatentLinearModel,
        start: Posterior | None,
        verbose: bool,
        checkpoint: str | os.PathLike[str] | None,
    ) -> Posterior:
        """A mixture, by dividing the space; see `latlin.inference.gaussian_kl.split`."""
        started = time.perf_counter()
        single = replace(self, components=1)
        first = single.run(model, start=start, verbose=verbose, checkpoint=checkpoint)
        if model.gaussian:
            return replace(first, message=f"{first.message}; the posterior is a Gaussian, so one component is exact")
        rough = replace(single, tol=max(self.tol, SPLIT_TOL))
        with np.errstate(all="ignore"), ignore_convergence_warnings():
            found = split(model, first, lambda part, near: rough.run(part, start=near), self.components)
        return join_parts(first, found, self.components, started)

    def _run_structured(self, covariance: CovarianceOption, task: FullTask) -> Posterior:
        started, (model, start, rules, verbose, checkpoint) = time.perf_counter(), task
        form = structured_form(model, self.probes)
        starts = structured_starts(form) if start is None else [inherit_moments(form, start)]
        climber = Climber(form, rules, verbose, checkpoint)
        with use_one_pool(form.rows):
            continued = None if start is None else covariance.continue_fit(climber, start)
            structure, ascent, note = continued or fit_from_starts(covariance, climber, starts)
        m, theta = ascent.state.point[: form.dim], ascent.state.point[form.dim :]
        return Posterior(
            model=model,
            density=Gaussian(form.weights(m), StructuredCovariance(form.whitening, structure, theta)),
            log_evidence=ascent.state.bound,
            evidence_kind="approximation" if form.probed else "lower bound",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + note + ("" if form.log_concave else LOCAL) + (PROBED if form.probed else ""),
            evidence_term=ExpectedEvidence(),
        )


def name_covariance(name: str, options: dict[str, Any]) -> Full | Estimated | CovarianceOption:
    """The covariance of a name with its options; None is an option that was not given."""
    known: dict[str, type[Any]] = {kind.name: kind for kind in NAMED}
    if name not in known:
        raise ValueError(f"covariance must be one of {', '.join(known)}, got {name!r}")
    kind = known[name]
    own = [field.name for field in fields(kind)]
    for option, value in options.items():
        if value is not None and option not in own:
            raise ValueError(f"{option} has no meaning for covariance={name!r}")
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    given = {option: options[option] for option in own if options[option] is not None or option in needed}
    return kind(**given)
