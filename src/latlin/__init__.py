"""Deterministic Bayesian inference in latent linear models.

Names are loaded when first used, so that `import latlin` is quick and brings in nothing that is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latlin.numerics.reported import Reported as _Reported
from latlin.version import __version__ as __version__

if TYPE_CHECKING:
    from latlin import engines, potentials, priors
    from latlin.hyper.evidence import integrate_evidence, maximise_evidence
    from latlin.inference.compare import Comparison, compare
    from latlin.inference.infer import infer
    from latlin.inference.model import Constraint, GaussianFactor, LatentLinearModel, SiteFactor
    from latlin.inference.posterior import Posterior
    from latlin.numerics.alerts import ConvergenceWarning, MisfitWarning
    from latlin.numerics.archive import load

_WHERE = {
    "Comparison": "latlin.inference.compare",
    "Constraint": "latlin.inference.model",
    "ConvergenceWarning": "latlin.numerics.alerts",
    "GaussianFactor": "latlin.inference.model",
    "LatentLinearModel": "latlin.inference.model",
    "MisfitWarning": "latlin.numerics.alerts",
    "Posterior": "latlin.inference.posterior",
    "SiteFactor": "latlin.inference.model",
    "compare": "latlin.inference.compare",
    "infer": "latlin.inference.infer",
    "integrate_evidence": "latlin.hyper.evidence",
    "load": "latlin.numerics.archive",
    "maximise_evidence": "latlin.hyper.evidence",
}
_ROOMS = (
    "additive",
    "covariances",
    "datasets",
    "design",
    "diagnostics",
    "distributed",
    "engines",
    "factor",
    "gp",
    "linear",
    "mixture",
    "plot",
    "potentials",
    "priors",
    "quadrature",
    "report",
    "swag",
)

__all__ = [
    "Comparison",
    "Constraint",
    "ConvergenceWarning",
    "GaussianFactor",
    "LatentLinearModel",
    "MisfitWarning",
    "Posterior",
    "SiteFactor",
    "compare",
    "engines",
    "infer",
    "integrate_evidence",
    "load",
    "maximise_evidence",
    "potentials",
    "priors",
]


def _write_report(*arguments: Any, **options: Any) -> None:
    import_module("latlin.report").write_report(*arguments, **options)


_Reported._write = staticmethod(_write_report)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _ROOMS:
        return import_module(f"latlin.{name}")
    raise AttributeError(f"module 'latlin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS, "__version__"})
