"""What every engine returns: a density over w, the log evidence with its kind, and how it got there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.inference.diagnosis.log_joint import gaussian_kl_bound
from latlin.inference.evidence.terms import EvidenceTerm, ExpectedEvidence, TiltedEvidence
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.numerics.archive import Archived, save_with_card
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_matrix, check_whole, dense_operator
from latlin.numerics.rng import RandomState
from latlin.numerics.stored import is_storable, storable_as

if TYPE_CHECKING:
    from latlin.inference.diagnosis.correction import CorrectedMarginals
    from latlin.inference.diagnosis.diagnose import Diagnosis

EvidenceKind = Literal["exact", "lower bound", "approximation", "none"]


class StoredModel(LatentLinearModel):
    """In the place of a model whose training data were not stored: its dimension, and nothing else."""

    def __init__(self, dim: int) -> None:
        object.__setattr__(self, "dim", dim)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("gaussians", "sites"):
            raise ValueError(
                "this posterior was loaded from a file, which has no training data: fit again to use them, or give it "
                "its model, dataclasses.replace(posterior, model=model)"
            )
        raise AttributeError(f"StoredModel has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"StoredModel(dim={self.dim})"


@dataclass(frozen=True)
class Posterior(Archived):
    """An approximate (or exact) posterior of a `LatentLinearModel`.

    Attributes
    ----------
    density : Gaussian or another density over w
    log_evidence : float
        log Z with every constant; `evidence_kind` says whether it is exact, a bound or an approximation.
    evidence_kind : {"exact", "lower bound", "approximation", "none"}
    engine : str
        Short name of the engine.
    converged : bool
    n_iter : int
    trace : ndarray
        The objective after each step.
    elapsed : float
        Seconds.
    message : str
        How the fit ended, in words.
    sites : SiteParameters or None
        γ and ν of the Gaussian stand-ins, where the engine has them; with respect to x = h_nᵀ(w − prior mean).
    bound_error : float
        Estimated numerical error of `log_evidence`, where the engine integrates on a grid.
    power : float
        Of expectation propagation: the power in which sites were matched.
    evidence_term : EvidenceTerm or None
        How the evidence depends on the sites, for `evidence_gradient`.
    caution : (str, str) or None
        A verdict that no diagnosis may improve on, and why: hyperparameters at an end of their search, for example;
        "unknown" where draws from this part of a whole would say nothing.
    names : tuple of str or None
        Names of the coordinates of w, for messages; estimators give those of their features.
    model : LatentLinearModel
    """

    #: goes on from a Gaussian KL optimum; set by expectation propagation, whose result is a posterior
    _propagate: ClassVar[Callable[[LatentLinearModel, Posterior], Posterior | None]]

    model: Model = field(repr=False)
    density: Density = field(repr=False)
    log_evidence: float
    evidence_kind: EvidenceKind
    engine: str
    converged: bool
    n_iter: int
    trace: Array = field(repr=False)
    elapsed: float
    message: str
    sites: SiteParameters | None = field(default=None, repr=False)
    bound_error: float = 0.0
    power: float = 1.0
    evidence_term: EvidenceTerm | None = field(default=None, repr=False)
    caution: tuple[str, str] | None = None
    names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def mean(self) -> Array:
        """Posterior mean (the mode, for a point estimate)."""
        return self.density.mean

    @property
    def variance(self) -> Array:
        """Marginal variances of the coordinates of w."""
        return self.density.variance

    def with_names(self, names: tuple[str, ...] | None) -> Posterior:
        """The same with names of its coordinates, in its caution too."""
        if names is None or self.caution is None:
            return replace(self, names=names)
        word, sentence = self.caution
        said = re.sub(r"coordinate (\d+)", lambda found: repr(names[int(found[1])]), sentence)
        return replace(self, names=names, caution=(word, said))

    def covariance(self) -> Array:
        """The covariance matrix, dense."""
        return self.density.covariance()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws of w, one per row."""
        return self.density.sample(check_whole("count", count), random_state)

    def logpdf(self, w: ArrayLike) -> Array:
        """Log density at one w or each row of a matrix."""
        points = np.asarray(w, float)
        if points.ndim not in (1, 2) or points.shape[-1] != self.model.dim:
            raise ValueError(f"w must be one vector or rows of length {self.model.dim}, got shape {points.shape}")
        finite = np.isfinite(points).all(axis=-1)
        values = np.asarray(np.where(np.isnan(points).any(axis=-1), np.nan, -np.inf))
        if finite.any():
            with np.errstate(over="ignore"):  # so far out that the logarithm is −∞
                values[finite] = self.density.logpdf(points[finite] if points.ndim == 2 else points)
        return values[()]

    def project(self, H: Any) -> Any:
        """Marginals of Hw, one per row of H: `.mean`, `.variance` and the density."""
        return self.density.project(check_matrix(dense_operator(H), "H", self.model.dim))

    def diagnose(self, n: int | None = None, random_state: RandomState = None) -> Diagnosis:
        """How far to trust this posterior, by importance sampling against its model.

        Parameters
        ----------
        n : int, optional
            Draws, at least 200: half from this posterior, half from wider copies with heavy tails and from the prior.
            By default 4,000, and fewer beyond 2,000 sites, down to 1,000, so that a diagnosis takes no more than some
            fits.
        random_state : int, Generator or RandomState, optional

        Returns
        -------
        Diagnosis
            A verdict in words with its reason, k̂, effective draws, the evidence with an error and an interval,
            corrected moments.

        Examples
        --------
        >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
        >>> model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[2.0], [1.0]], potentials.Logit([1, 1]))])
        >>> infer(model, "gkl").diagnose(random_state=0).verdict
        'accurate'
        """
        from latlin.inference.diagnosis.diagnose import diagnose  # when first needed: fits do without it

        return diagnose(self, n, random_state)

    def corrected_marginals(self, H: Any = None) -> CorrectedMarginals:
        """Marginals of w, or of Hw, with the skew that a Gaussian leaves out, for Gaussian KL and EP.

        Means and variances are those of expectation propagation, corrected by the third and fourth cumulants of the
        tilted densities to leading order; Gaussian KL goes there by a few sweeps from its own optimum. Where sites are
        not log-concave it is corrected in its place, by the third and fourth derivatives of the sites averaged over
        the Gaussian. It needs the covariances of all pairs of sites.

        Parameters
        ----------
        H : array of shape (n, dim), optional
            Projections; by default the coordinates of w.

        Returns
        -------
        CorrectedMarginals
            `mean`, `variance`, `std`, `skewness`, and `quantile(q)`.

        Examples
        --------
        >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
        >>> model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[2.0], [1.0]], potentials.Logit([1, 1]))])
        >>> infer(model, "gkl").corrected_marginals().skewness.round(2).tolist()
        [0.19]
        """
        from latlin.inference.diagnosis.correction import correct_marginals  # when first needed: fits do without it

        expected = isinstance(self.evidence_term, ExpectedEvidence)
        propagated = self.sites if isinstance(self.evidence_term, TiltedEvidence) and self.power == 1.0 else None
        if not (expected or propagated is not None) or not isinstance(self.density, Gaussian):
            raise ValueError(
                "corrected_marginals() corrects one Gaussian of engine 'gkl', or of 'ep' with power 1, and this is "
                f"engine {self.engine!r} with {type(self.density).__name__}"
            )
        rows = np.eye(self.model.dim) if H is None else check_matrix(dense_operator(H), "H", self.model.dim)
        model, density = require_in_memory(self.model), self.density
        if expected and (found := type(self)._propagate(model, self)) is not None:
            assert isinstance(found.density, Gaussian)  # that of the engine
            density, propagated = found.density, found.sites
        return correct_marginals(model, density, rows, propagated)

    def kl_bound(self) -> float:
        """The Gaussian KL lower bound on log Z at this posterior's mean and covariance.

        For local bounds it is never below their own; for Laplace and expectation propagation it is the lower bound
        that their Gaussian gives.
        """
        if not isinstance(self.density, Gaussian):
            raise ValueError(f"kl_bound() needs a Gaussian posterior, and that of engine {self.engine!r} is none")
        return gaussian_kl_bound(require_in_memory(self.model), self.density)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this posterior to a file, all or nothing: everything but its model.

        The model holds the data, and functions where potentials or projections are given by such; it is not stored.
        `latlin.load` reads the file and never runs anything in it.

        Examples
        --------
        >>> import dataclasses, os, tempfile
        >>> import latlin
        >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
        >>> model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[2.0], [1.0]], potentials.Logit([1, 1]))])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     infer(model, "gkl").save(os.path.join(folder, "posterior.npz"))
        ...     same = latlin.load(os.path.join(folder, "posterior.npz"))
        >>> same.evidence_kind, same.project([[3.0]]).mean.shape
        ('lower bound', (1,))
        >>> dataclasses.replace(same, model=model).diagnose(random_state=0).verdict
        'accurate'
        """
        save_with_card(path, self.without_functions(), None)

    def without_functions(self) -> Posterior:
        """Without an evidence term that files cannot keep: that of an engine of the user's own."""
        kept = self.evidence_term is None or is_storable(self.evidence_term)
        return self if kept else replace(self, evidence_term=None)

    def _options_to_save(self) -> dict[str, Any]:
        return {"dim": int(self.model.dim)}

    @classmethod
    def _made_from(cls, options: dict[str, Any], attributes: dict[str, Any]) -> Posterior:
        _check_density(attributes["density"], options["dim"])
        return cls(model=StoredModel(options["dim"]), **attributes)


def _check_density(density: Any, dim: Any) -> None:
    """A density from a file is over `dim` coordinates, and it answers."""
    if not isinstance(dim, int) or np.shape(density.mean) != (dim,):
        raise ValueError(f"a stored density has dimension {np.shape(density.mean)}, the model {dim}")
    # lengths first: an answer from arrays of other lengths could need any memory
    length = getattr(density, "structure", density).dim
    if length != dim:
        raise ValueError(f"a stored covariance has dimension {length}, the mean {dim}")
    found = density.project(np.zeros((1, dim)))
    if np.shape(found.mean) != (1,) or np.shape(found.variance) != (1,):
        raise ValueError("a stored density does not answer")
    # a point has no density, and refuses in words; any other error is one of the file
    with suppress(ValueError, np.linalg.LinAlgError):
        density.logpdf(density.mean)


def _take_apart(posterior: Posterior) -> dict[str, Any]:
    posterior = posterior.without_functions()
    return posterior._options_to_save() | {name: getattr(posterior, name) for name in _STORED}


def _put_together(dim: int, **attributes: Any) -> Posterior:
    return Posterior._made_from({"dim": dim}, attributes)


_STORED = tuple(part.name for part in fields(Posterior) if part.name != "model")
#: files of version 0.1 have no names
Posterior._saved = tuple(f"{name}?" if name == "names" else name for name in _STORED)
storable_as(Posterior, _take_apart, _put_together)
