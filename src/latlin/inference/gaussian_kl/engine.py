"""Gaussian KL: the Gaussian closest to the posterior in KL(q‖p), with a lower bound on the log evidence.

Challis (2013), chapter 4. The covariance is chosen by one word; the ascent for each lives in a file of its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from latlin.inference.engine import checkpoint_for
from latlin.inference.gaussian_kl.full_fit import Asked
from latlin.inference.gaussian_kl.options import Options, plan_of, structured_posterior
from latlin.inference.gaussian_kl.plans import Plan
from latlin.inference.gaussian_kl.ways import ALGORITHMS, way_of
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Rules
from latlin.numerics.stored import storable_by_arguments

REMEDY = "raise max_iter, rescale the columns of H, or start from another posterior"
LOCAL = "; the sites are not log-concave, so this optimum may be local"


@storable_by_arguments
@dataclass(frozen=True)
class GaussianKL:
    """The Gaussian that maximises the lower bound on log Z.

    Parameters
    ----------
    covariance : {"full", "diagonal", "banded", "chevron", "sparse", "subspace", "low-rank"}
        Shape of S = CᵀC. All but "full" act in the model's own coordinates and form nothing of size N×D or D×D.
    rank : int, optional
        Full rows of a chevron, dimension of a subspace, or number of loadings of "low-rank" (S = ΘΘᵀ + diag d²).
    bandwidth : int, optional
        Super-diagonals of a banded C (0 is diagonal), or of a subspace's inner factor.
    order : None, "natural" or array of int, optional
        The coordinates that get a chevron's full rows; None chooses those most correlated with others, or keeps those
        of a chevron of this rank from which the fit starts.
    pattern : matrix of shape (dim, dim), optional
        Its non-zeros are the places of a sparse C (upper triangle; the diagonal is always there).
    basis : {"eigen", "lanczos", "pca", "projected"} or array of shape (dim, rank), optional
        Of a subspace: eigenvectors of the precision chosen for the smallest loss, its leading ones (by Lanczos
        iterations up to 1,000 dimensions, by filtered steps from the last basis beyond), principal components of H, or
        gradient ascent on the basis; all but "pca" alternate with the fit. By default "eigen" up to 1,000 dimensions,
        "lanczos" beyond.
    inner : {"full", "banded", "diagonal"}
        Factor inside a subspace.
    probes : int
        Random sign vectors that stand in for the squares of a LinearOperator H without an attribute `squares`.
    tol : float
        Largest absolute gradient entry of the bound, in coordinates whitened by the prior, at convergence.
    max_iter : int
        Steps at most (20 times as many for quasi-Newton steps, which serve where the bound is not concave).
    algorithm : {"auto", "sites", "sums"}
        How a full covariance is fitted. "sites" keeps two numbers for each site; "sums" keeps nothing a row, and its
        steps are those on blocks of rows, whatever the blocks. "auto" is "sums" for log-concave sites on at least 40
        rows a dimension, with "sites" to fall back on, and "sites" for other models.

    Notes
    -----
    With log-concave sites the optimum is unique and the ascent starts at the Laplace approximation; otherwise it starts
    from several places, keeps the best and says that the optimum may be local. With Gaussian sites the result is exact.
    """

    name: ClassVar[str] = "gkl"
    covariance: str = "full"
    rank: int | None = None
    bandwidth: int | None = None
    order: Any = None
    pattern: Any = None
    basis: Any = None
    inner: str = "full"
    probes: int = 64
    tol: float = 1e-6
    max_iter: int = 300
    algorithm: str = "auto"

    def __post_init__(self) -> None:
        plan = self._plan()
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        if plan is not None and self.algorithm != "auto":
            raise ValueError(f"algorithm={self.algorithm!r} has no meaning for covariance={self.covariance!r}")

    def _plan(self) -> Plan | None:
        return plan_of(
            Options(self.covariance, self.rank, self.bandwidth, self.order, self.pattern, self.basis, self.inner)
        )

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        plan = self._plan()
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        if plan is not None:
            return structured_posterior(self, plan, rules, model, start, verbose, checkpoint)
        started = time.perf_counter()
        asked = Asked(model, start, rules, verbose, checkpoint_for(checkpoint, model, self))
        ascent, density, bound, sites = way_of(self.algorithm, model).fit(asked)
        potentials = [factor.potential for factor in model.sites]
        return Posterior(
            model=model,
            density=density,
            log_evidence=bound,
            evidence_kind="exact" if all(potential.gaussian for potential in potentials) else "lower bound",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + ("" if all(potential.log_concave for potential in potentials) else LOCAL),
            sites=sites,
        )
