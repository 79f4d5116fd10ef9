"""Numbers of small seeded fits of everything public, to show that a change of the code keeps them.

`python tools/golden.py write FILE.npz` fits and stores; `python tools/golden.py check FILE.npz` fits again, names what
differs by more than 1e-10 of the array's largest entry, and exits with 1 if anything does. `--only TEXT` restricts both
to the cases whose names hold TEXT, `--tolerance` changes the 1e-10. A fit that is refused is stored as the name of its
error. Only public names of `latlin` are used, so that files may move. Use one thread:
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1. Run twice and take the second: loops that were compiled in
this process round differently from those that are loaded from the cache, and some climbs amplify that
(affine-independent KL with a spike-and-slab prior, to 1e-2).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare, engines, infer, potentials
from latlin.design import SequentialDesign, finite_differences
from latlin.distributed import LocalBlocks
from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    MixedFactorAnalysis,
    NoisyICA,
    choose_components,
)
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)
from latlin.mixture import BayesianGaussianMixture
from latlin.quadrature import (
    BayesianQuadrature,
    Gaussian,
    GaussianMixture,
    GaussianQuadratureGradient,
    Uniform,
    importance_sampling,
    integrate,
    monte_carlo,
    score_gradient,
    subsample,
)

Numbers = dict[str, Any]
Case = tuple[str, Callable[[], Numbers]]

N, D = 40, 5
RNG = np.random.default_rng(20)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.7) + np.linspace(0.0, 0.4, D)
ETA = X @ np.linspace(-1.0, 1.2, D)
Y = ETA + 0.5 * RNG.standard_t(4.0, N)
LABELS = np.where(ETA + RNG.logistic(size=N) > 0.0, "yes", "no")
CLASSES = np.digitize(ETA + RNG.logistic(size=N), [-0.7, 0.6])
COUNTS = RNG.poisson(np.exp(0.4 * ETA))
WEIGHT, OFFSET = RNG.random(N) + 0.5, 0.2 * RNG.standard_normal(N)
NEW = RNG.standard_normal((6, D))

# --- what is stored of a fit ------------------------------------------------------------------------------------------

# how a fit went, sentences, and how an estimator holds its parts
LEFT_OUT = {"trace_", "n_iter_", "elapsed_", "message_", "sites_"}
METHODS = (
    "predict",
    "predict_proba",
    "predict_interval",
    "predict_latent",
    "transform",
    "score_samples",
    "separate",
    "impute",
    "leave_one_out",
)


def of_posterior(post: Any) -> Numbers:
    """Mean, variance and evidence of a posterior, with its kind."""
    numbers = {"log_evidence": post.log_evidence, "kind": post.evidence_kind, "converged": post.converged}
    for name in ("mean", "variance"):
        numbers |= flat(name, getattr(post, name))
    return numbers


def flat(name: str, value: Any) -> Numbers:
    """Numbers and words by name; tuples and dicts one by one; anything else nothing."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(f"{name}.{key}", item).items()}
    if isinstance(value, tuple | list):
        return {k: v for i, item in enumerate(value) for k, v in flat(f"{name}.{i}", item).items()}
    if sparse.issparse(value):
        value = value.toarray()
    if isinstance(value, latlin.Posterior):
        return {f"{name}.{key}": item for key, item in of_posterior(value).items()}
    if not isinstance(value, str | bool | int | float | np.generic | np.ndarray):
        return {}
    array = np.asarray(value)
    if array.dtype == object:
        array = array.astype(str)
    return {name: array} if array.dtype.kind in "bifU" else {}


REFUSALS = (ValueError, TypeError, AttributeError, NotImplementedError, ArithmeticError)


def attempted(name: str, question: Callable[[], Any]) -> Numbers:
    """The answer, or the name of the error."""
    try:
        return flat(name, question())
    except REFUSALS as error:
        return {f"{name}.refused": type(error).__name__}


def of_estimator(model: Any, rows: Any) -> Numbers:
    """Every fitted attribute, and what the estimator says of the rows."""
    getattr(model, "checks_", None)  # found when first asked for
    names = {*vars(model), *(n for n in dir(type(model)) if isinstance(getattr(type(model), n, None), property))}
    numbers: Numbers = {}
    for name in sorted(names):
        if not name.endswith("_") or name.startswith("_") or name in LEFT_OUT:
            continue
        value = getattr(model, name, None)
        if name != "posterior_" or isinstance(value, latlin.Posterior):
            numbers |= flat(name, value)
    numbers.pop("history_.2", None)  # seconds
    for name in METHODS:
        if hasattr(model, name):
            numbers |= attempted(name, partial(getattr(model, name), *(() if name == "leave_one_out" else (rows,))))
    return numbers


def fitted(model: Any, rows: Any, *data: Any, new: Any = None, **beside: Any) -> Numbers:
    """The numbers of an estimator fitted to the data."""
    return of_estimator(model.fit(rows, *data, **beside), rows if new is None else new)


# --- infer and compare ------------------------------------------------------------------------------------------------

ENGINES: dict[str, Any] = {
    "map": engines.MAP(),
    "laplace": engines.Laplace(),
    "mean-field": engines.MeanField(),
    "lvb": engines.LocalBound(),
    "lvb-lanczos": engines.LocalBound(variances="lanczos", rank=4),
    "ep": engines.ExpectationPropagation(),
    "ep-parallel": engines.ExpectationPropagation(power=0.9, damping=0.3, schedule="parallel"),
    "auto": "auto",
}
COVARIANCES: dict[str, dict[str, Any]] = {
    "full": {},
    "diagonal": {},
    "banded": {"bandwidth": 1},
    "chevron": {"rank": 2},
    "sparse": {"pattern": np.triu(np.ones((D, D)), 3)},
    "subspace": {"rank": 2},
    "low-rank": {"rank": 1},
}
ENGINES |= {f"gkl-{name}": engines.GaussianKL(name, **options) for name, options in COVARIANCES.items()}
ENGINES |= {
    "gkl-subspace-banded": engines.GaussianKL("subspace", rank=3, inner="banded", bandwidth=1),
    "gkl-subspace-diagonal": engines.GaussianKL("subspace", rank=3, inner="diagonal"),
    "gkl-natural-order": engines.GaussianKL("chevron", rank=2, order="natural"),
}


def log_sigmoid(x: Any) -> Any:
    return -np.logaddexp(0.0, -x)


POTENTIALS: dict[str, Callable[[], Any]] = {
    "logit": lambda: potentials.Logit(LABELS == "yes"),
    "probit": lambda: potentials.Probit(LABELS == "yes"),
    "step": lambda: potentials.Step(LABELS == "yes", 0.05),
    "poisson": lambda: potentials.Poisson(COUNTS),
    "ordinal": lambda: potentials.Ordinal(CLASSES, [-0.7, 0.6]),
    "ordinal-logit": lambda: potentials.Ordinal(CLASSES, [-0.7, 0.6], link="logit"),
    "gaussian": lambda: potentials.Gaussian(Y, 0.8),
    "laplace": lambda: potentials.Laplace(Y, 0.8),
    "logistic": lambda: potentials.Logistic(Y, 0.5),
    "cauchy": lambda: potentials.Cauchy(Y, 0.6),
    "student-t": lambda: potentials.StudentT(4.0, Y, 0.6),
    "generalised-normal": lambda: potentials.GeneralisedNormal(1.5, Y, 0.8),
    "custom": lambda: potentials.Custom(log_sigmoid),
}
PRIORS: dict[str, Callable[[], list[Any]]] = {
    "full": lambda: [GaussianFactor(0.1, np.eye(D) + 0.3)],
    "two": lambda: [GaussianFactor(dim=D), GaussianFactor(0.2, 0.5, H=X[:3])],
    "laplace": lambda: [SiteFactor(None, potentials.Laplace(np.zeros(D), 0.7))],
    "student-t": lambda: [SiteFactor(None, potentials.StudentT(3.0, np.zeros(D), 0.7))],
    "spike": lambda: [SiteFactor(None, potentials.GaussianMixture([0.5, 0.5], np.zeros(2), [0.05, 1.0]))],
}
KINDS = {"dense": np.asarray, "sparse": sparse.csr_array, "operator": aslinearoperator}
WIDE = np.random.default_rng(3).standard_normal((6, 15))


def of_inference(model: Callable[[], LatentLinearModel], engine: Any) -> Numbers:
    post = infer(model(), engine)
    projected = post.project(NEW if len(post.mean) == D else WIDE)
    return of_posterior(post) | flat("projected", (projected.mean, projected.variance))


def plain(family: str) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(cov=np.linspace(0.5, 2.0, D)), SiteFactor(X, POTENTIALS[family]())])


def weighted(prior: str, kind: str = "dense", family: str = "logit") -> LatentLinearModel:
    return LatentLinearModel([*PRIORS[prior](), SiteFactor(KINDS[kind](X), POTENTIALS[family](), WEIGHT, OFFSET)])


def wide() -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=15), SiteFactor(WIDE, potentials.Logit(np.arange(6) % 2))])


def small(family: str) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X[:8, :2], POTENTIALS_SMALL[family])])


POTENTIALS_SMALL = {
    "logit": potentials.Logit(LABELS[:8] == "yes"),
    "laplace": potentials.Laplace(Y[:8], 0.8),
    "student-t": potentials.StudentT(4.0, Y[:8], 0.6),
}


def compared() -> Numbers:
    table = compare(plain("logit"), [*ENGINES.values()][:7], diagnose=True, random_state=0)
    kept = {"log_evidence", "log evidence", "gap", "k̂", "low", "high", "verdict", "evidence"}
    numbers = flat("order", [str(row["engine"]) for row in table.rows])
    for i, row in enumerate(table.rows):
        numbers |= flat(f"row{i}", {key: value for key, value in row.items() if key in kept and value is not None})
    return numbers


def diagnosed() -> Numbers:
    post = infer(plain("logit"), "gkl")
    diagnosis = post.diagnose(500, random_state=0)
    kept = {name: value for name, value in vars(diagnosis).items() if name not in ("reason", "next_engine")}
    numbers = flat("diagnosis", kept)
    numbers |= flat("sample", post.sample(3, random_state=0)) | flat("covariance", post.covariance())
    return numbers | flat("logpdf", post.logpdf(np.zeros(D)))


def inference_cases() -> Iterator[Case]:
    for family in POTENTIALS:
        for name, engine in ENGINES.items():
            yield f"infer/{family}/{name}", partial(of_inference, partial(plain, family), engine)
    for prior in PRIORS:
        for name, engine in ENGINES.items():
            yield f"infer/{prior}-prior/{name}", partial(of_inference, partial(weighted, prior), engine)
    for kind in ("sparse", "operator"):
        for name, engine in ENGINES.items():
            yield f"infer/{kind}/{name}", partial(of_inference, partial(weighted, "two", kind, "poisson"), engine)
    for name, engine in ENGINES.items():
        if name != "gkl-sparse":
            yield f"infer/wide/{name}", partial(of_inference, wide, engine)
    for algorithm in ("sites", "sums"):
        yield (
            f"infer/algorithm/{algorithm}",
            partial(
                lambda chosen: of_inference(partial(plain, "student-t"), engines.GaussianKL(algorithm=chosen)),
                algorithm,
            ),
        )
    for base in ("normal", "skew-normal", "student-t", "logistic", "auto"):
        yield f"infer/ai-kl/{base}", partial(of_small, "logit", base)
    for family in ("laplace", "student-t"):
        yield f"infer/ai-kl/{family}-sites", partial(of_small, family, "skew-normal")
    yield "compare", compared
    yield "diagnose", diagnosed


def of_small(family: str, base: str) -> Numbers:
    return of_posterior(infer(small(family), engines.AffineKL(base)))


# --- linear models ----------------------------------------------------------------------------------------------------

LINEAR: dict[str, tuple[type, dict[str, Any], Any]] = {
    "linear": (BayesianLinearRegression, {}, Y),
    "logistic": (BayesianLogisticRegression, {}, LABELS),
    "logistic-classes": (BayesianLogisticRegression, {}, CLASSES),
    "probit": (BayesianProbitRegression, {}, LABELS),
    "poisson": (BayesianPoissonRegression, {}, COUNTS),
    "ordinal": (BayesianOrdinalRegression, {}, CLASSES),
    "ordinal-logit": (BayesianOrdinalRegression, {"link": "logit"}, CLASSES),
    "robust": (RobustRegression, {}, Y),
    "robust-laplace": (RobustRegression, {"likelihood": "laplace"}, Y),
    "robust-cauchy": (RobustRegression, {"likelihood": "cauchy"}, Y),
    "sparse": (SparseRegression, {}, Y),
    "sparse-student-t": (SparseRegression, {"prior": "student-t", "likelihood": "student-t"}, Y),
    "sparse-generalised-normal": (SparseRegression, {"prior": "generalised-normal", "prior_shape": 1.2}, Y),
}
LINEAR_ENGINES: dict[str, Any] = {
    "map": "map",
    "laplace": "laplace",
    "lvb": "lvb",
    "ep": "ep",
    "mean-field": "mean-field",
    "gkl": "gkl",
    "gkl-diagonal": engines.GaussianKL("diagonal"),
    "gkl-chevron": engines.GaussianKL("chevron", rank=2),
}


#: the numbers that an engine without an evidence cannot learn
GIVEN: dict[str, dict[str, Any]] = {"cuts": {"cuts": [-0.7, 0.6]}, "noise_scale": {"noise_scale": 0.6}}


def without_evidence(kind: type, own: dict[str, Any]) -> Any:
    """The estimator with engine "map" and everything given."""
    given = own | {"engine": "map", "prior_scale": 1.0}
    for name, value in GIVEN.items():
        given |= value if name in kind().get_params() else {}
    return kind(**given)


def linear(name: str, rows: Any = X, given: tuple[Any, ...] = (), **options: Any) -> Numbers:
    kind, own, y = LINEAR[name]
    return fitted(kind(**own | options), rows, y, *given, new=NEW)


def streamed(kind: type, y: Any) -> Numbers:
    model = kind(prior_scale=1.0)
    more = {"classes": np.unique(y)} if y is LABELS else {}
    for part in (slice(0, 20), slice(20, N)):
        model.partial_fit(X[part], y[part], **more)
    return of_estimator(model, NEW)


def saved(model: Any) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.npz")
        return of_estimator(latlin.load(Path(folder) / "model.npz"), NEW)


def linear_cases() -> Iterator[Case]:
    for name in LINEAR:
        yield f"linear/{name}/learnt", partial(linear, name)
        for engine, given in LINEAR_ENGINES.items():
            yield f"linear/{name}/{engine}", partial(linear, name, engine=given, prior_scale=1.0)
        kind, own, y = LINEAR[name]
        yield f"linear/{name}/map-given", partial(fitted, without_evidence(kind, own), X, y, new=NEW)
        weights = (WEIGHT, OFFSET)
        yield f"linear/{name}/weight-offset", partial(linear, name, X, weights, prior_scale=1.0)
        compressed = sparse.csr_array(X)
        yield f"linear/{name}/sparse", partial(linear, name, compressed, weights, prior_scale=1.0, standardise=False)
    for name in ("linear", "logistic", "poisson", "ordinal", "robust"):
        yield f"linear/{name}/ard", partial(linear, name, ard=True)
        yield f"linear/{name}/learnt-laplace", partial(linear, name, engine="laplace")
    for name in ("logistic", "probit", "ordinal", "robust"):
        yield f"linear/{name}/learnt-ep", partial(linear, name, engine="ep")
    yield "linear/robust/learnt-df", partial(linear, "robust", df="auto")
    for kind, y in ((BayesianLinearRegression, Y), (BayesianLogisticRegression, LABELS)):
        yield f"linear/stream/{kind.__name__}", partial(streamed, kind, y)
    yield "linear/saved", lambda: saved(BayesianLogisticRegression(prior_scale=1.0).fit(X, LABELS))


# --- processes --------------------------------------------------------------------------------------------------------


def process_cases() -> Iterator[Case]:
    rows = X[:25, :2]
    kernel = ConstantKernel(1.3) * RBF([1.0, 2.0])
    y = np.sin(2.0 * rows[:, 0]) + 0.3 * Y[:25]
    targets = {"poisson": COUNTS[:25], "ordinal": CLASSES[:25]}
    likelihoods = ("gaussian", "student-t", "laplace", "cauchy", "logistic", "poisson", "ordinal")

    def regression(**options: Any) -> Numbers:
        model = GaussianProcessRegressor(kernel, random_state=0, **options)
        return fitted(model, rows, targets.get(options["likelihood"], y), new=NEW[:, :2])

    def classification(labels: Any = LABELS[:25], kernel: Any = kernel, **options: Any) -> Numbers:
        return fitted(GaussianProcessClassifier(kernel, random_state=0, **options), rows, labels, new=NEW[:, :2])

    for likelihood in likelihoods:
        for engine in ("laplace", "gkl", "ep", "lvb"):
            yield f"gp/{likelihood}/{engine}", partial(regression, likelihood=likelihood, engine=engine, optimizer=None)
        yield f"gp/{likelihood}/learnt", partial(regression, likelihood=likelihood, max_iter=15)
    for engine in ("laplace", "gkl", "ep", "lvb"):
        for link in ("logit", "probit"):
            yield f"gp/{link}/{engine}", partial(classification, link=link, engine=engine, max_iter=8)
    yield "gp/classes", partial(classification, CLASSES[:25], optimizer=None)
    yield "gp/matern", partial(classification, kernel=Matern(1.0, nu=1.5), max_iter=8)


# --- factor models ----------------------------------------------------------------------------------------------------

TALL = np.random.default_rng(5).standard_normal((120, 3)) @ np.random.default_rng(6).standard_normal(
    (3, 8)
) + np.random.default_rng(7).standard_normal((120, 8))


def holes(rows: Any) -> Any:
    return np.where(np.random.default_rng(8).random(rows.shape) < 0.1, np.nan, rows)


def mixed_table() -> tuple[Any, list[str]]:
    rng = np.random.default_rng(9)
    eta = TALL[:80]
    table = np.column_stack(
        [
            eta[:, :2],
            eta[:, 2:4] > 0.0,
            rng.poisson(np.exp(0.3 * eta[:, 4])),
            np.digitize(eta[:, 5], [-1.0, 1.0]),
            np.digitize(eta[:, 6], [-0.5, 0.5]),
        ]
    )
    return table, ["real"] * 2 + ["binary"] * 2 + ["count", "ordinal", "categorical"]


def factor_cases() -> Iterator[Case]:
    table, types = mixed_table()
    rng = np.random.default_rng(10)
    on = rng.random((100, 3)) < 0.4
    pictures = on @ rng.random((3, 9)) + 0.1 * rng.standard_normal((100, 9))
    sources = rng.laplace(size=(150, 2)) @ rng.standard_normal((2, 4)) + 0.2 * rng.standard_normal((150, 4))
    views = {"a": TALL[:, :5], "b": TALL[:, 5:]}
    for method in ("ml", "em", "online-em", "gradient"):
        for noise in ("diagonal", "isotropic"):
            model = FactorAnalysis(2, method=method, noise=noise, max_iter=60, random_state=0)
            yield f"factor/{method}/{noise}", partial(fitted, model, TALL)
    yield "factor/ml/varimax", partial(fitted, FactorAnalysis(2, rotate="varimax"), TALL)
    yield "factor/em/missing", partial(fitted, FactorAnalysis(2, method="em", max_iter=60), holes(TALL))
    yield "factor/chosen", partial(fitted, FactorAnalysis("bic"), TALL)
    yield "factor/choice", lambda: flat("scores", choose_components(FactorAnalysis(), TALL, [1, 2, 3]).scores)
    for rank in ("full", 2):
        group = GroupFactorAnalysis(4, rank=rank, max_iter=60, random_state=0)
        yield f"group/{rank}", partial(fitted, group, views)
    options: list[dict[str, Any]] = [{"noise": "feature"}, {"rotate": False}, {"scale": "none"}]
    for more in options:
        group = GroupFactorAnalysis(3, max_iter=40, random_state=0, **more)
        yield f"group/{next(iter(more))}", partial(fitted, group, views)
    gaps = {name: holes(view) for name, view in views.items()}
    yield "group/missing", partial(fitted, GroupFactorAnalysis(3, max_iter=40, random_state=0), gaps)
    for inference in ("mean-field", "exact"):
        for ard in (True, False):
            binary = BinaryFactorAnalysis(3, inference=inference, ard=ard, n_init=3, max_iter=60, random_state=0)
            yield f"binary/{inference}/{ard}", partial(fitted, binary, pictures)
    for source in ("student-t", "laplace"):
        for factorisation in ("block", "source"):
            ica = NoisyICA(2, source=source, factorisation=factorisation, n_init=1, max_iter=60, random_state=0)
            yield f"ica/{source}/{factorisation}", partial(fitted, ica, sources)
    for engine, latents in (("gkl", "gaussian"), ("ep", "gaussian"), ("gkl", "laplace"), ("gkl", "student-t")):
        mixed = MixedFactorAnalysis(2, types=types, engine=engine, latents=latents, max_iter=15, random_state=0)
        yield f"mixed/{engine}/{latents}", partial(fitted, mixed, holes(table))


# --- mixtures ---------------------------------------------------------------------------------------------------------


def mixture_cases() -> Iterator[Case]:
    rng = np.random.default_rng(11)
    rows = np.vstack([rng.standard_normal((50, 2)) + shift for shift in ([0.0, 0.0], [4.0, 1.0], [-2.0, 5.0])])
    weight = rng.random(len(rows)) + 0.5

    def mixture(*data: Any, rows: Any = rows, **options: Any) -> Numbers:
        own = {"n_init": 1, "split_merge": 2, "max_iter": 60, "random_state": 0}
        return fitted(BayesianGaussianMixture(4, **own | options), rows, *data)

    for covariance in ("full", "tied", "diagonal", "spherical", "fixed"):
        for prior in ("dirichlet", "stick-breaking"):
            yield f"mixture/cavi/{covariance}/{prior}", partial(mixture, covariance=covariance, weight_prior=prior)
        for algorithm in ("natural", "stochastic-natural"):
            case = partial(mixture, covariance=covariance, algorithm=algorithm, batch_size=40)
            yield f"mixture/{algorithm}/{covariance}", case
    for algorithm in ("gradient", "sgd", "score", "pathwise", "iwae"):
        yield f"mixture/{algorithm}", partial(mixture, covariance="fixed", algorithm=algorithm, batch_size=40)
    yield "mixture/gumbel", partial(mixture, covariance="fixed", algorithm="pathwise", labels="gumbel")
    for step in ("robbins-monro", "exponential", "adam", "constant"):
        case = partial(mixture, covariance="fixed", algorithm="gradient", step=step)
        yield f"mixture/gradient/{step}", case
    yield "mixture/weights", partial(mixture, None, weight)
    yield "mixture/missing", lambda: mixture(rows=holes(rows))
    yield "mixture/stream", partial(streamed_mixture, rows)


def streamed_mixture(rows: Any) -> Numbers:
    model = BayesianGaussianMixture(3, stream_size=len(rows), n_init=1, random_state=0)
    for part in np.array_split(np.random.default_rng(0).permutation(rows), 3):
        model.partial_fit(part)
    return of_estimator(model, rows)


# --- blocks of rows ---------------------------------------------------------------------------------------------------


def blocked(model: Any, *data: Any, kind: Callable[[Any], Any] = np.asarray, **beside: Any) -> Numbers:
    """Fitted to blocks of 15 rows; attributes and what is said of rows in memory."""
    rows = np.asarray(data[0])
    new = NEW if rows.shape[1] == D else rows
    return of_estimator(model.fit(LocalBlocks.of(kind(rows), *data[1:], rows=15), **beside), new)


def mapped(model: Any, y: Any) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        np.memmap(path, float, "w+", shape=X.shape)[:] = X
        return of_estimator(model.fit(np.memmap(path, float, "r", shape=X.shape), y), NEW)


def block_cases() -> Iterator[Case]:
    for name, (kind, own, y) in LINEAR.items():
        for engine, given in {"auto": "auto", **LINEAR_ENGINES}.items():
            options = own if engine == "auto" else own | {"engine": given, "prior_scale": 1.0}
            yield f"blocks/{name}/{engine}", partial(blocked, kind(**options), X, y)
        yield f"blocks/{name}/map-given", partial(blocked, without_evidence(kind, own), X, y)
        given = (X, y, WEIGHT, OFFSET)
        yield f"blocks/{name}/weight-offset", partial(blocked, kind(**own, prior_scale=1.0), *given)
        yield f"blocks/{name}/sparse", partial(blocked, kind(**own, prior_scale=1.0), *given, kind=sparse.csr_array)
        yield f"blocks/{name}/mapped", partial(mapped, kind(**own, prior_scale=1.0), y)
    for structure, options in COVARIANCES.items():
        shaped = engines.GaussianKL(structure, **options)
        model = BayesianLogisticRegression(engine=shaped, prior_scale=1.0, fit_intercept=False)
        yield f"blocks/covariance/{structure}", partial(blocked, model, X, LABELS)
    for method in ("ml", "em", "online-em", "gradient"):
        model = FactorAnalysis(2, method=method, max_iter=30, random_state=0)
        yield f"blocks/factor/{method}", partial(blocked, model, TALL)
    groups = [0, 1, 0, 1, 0, 1, 2, 2]
    group = GroupFactorAnalysis(3, max_iter=20, random_state=0)
    yield "blocks/group", partial(blocked, group, TALL, groups=groups)
    for algorithm in ("cavi", "natural", "stochastic-natural"):
        mixture = BayesianGaussianMixture(3, algorithm=algorithm, n_init=1, split_merge=1, max_iter=30, random_state=0)
        yield f"blocks/mixture/{algorithm}", partial(blocked, mixture, TALL[:, :3])


# --- design and quadrature --------------------------------------------------------------------------------------------


def designed(engine: Any, filters: Any, prior: Any, dim: int = 16) -> Numbers:
    rng = np.random.default_rng(12)
    signal = rng.laplace(scale=0.2, size=dim)
    design = SequentialDesign(filters, prior, 0.005, engine=engine, dim=dim)
    M = rng.standard_normal((5, dim))
    design.observe(M, M @ signal)
    rows = design.suggest(2)
    # the sign of an eigenvector is free
    rows = rows * np.sign(rows[np.arange(2), np.abs(rows).argmax(axis=1)])[:, None]
    numbers = flat("suggested", rows) | flat("gain", design.information_gain(M))
    design.observe(rows, rows @ signal)
    numbers |= flat("reconstruction", design.reconstruction) | flat("uncertainty", design.uncertainty)
    return numbers | of_posterior(design.posterior)


def peak(x: Any) -> Any:
    return np.exp(-0.5 * np.sum(((x - 0.3) / 0.6) ** 2, axis=1))


def of_integral(result: Any) -> Numbers:
    return {"mean": result.mean, "sd": result.sd, **flat("values", result.evaluations.values)}


def integrated(measure: Any, budget: int = 18, **options: Any) -> Numbers:
    return of_integral(integrate(peak, measure, budget, random_state=0, **options))


def of_gradient(estimate: Any) -> Numbers:
    return flat("gradient", (estimate.elbo, estimate.elbo_sd, estimate.mean, estimate.mean_sd, estimate.cov))


def design_cases() -> Iterator[Case]:
    chosen: dict[str, Any] = {
        "gkl": "gkl",
        "lvb": "lvb",
        "ep": engines.ExpectationPropagation(power=0.9),
        "chevron": engines.GaussianKL("chevron", rank=4),
        "subspace": engines.GaussianKL("subspace", rank=4),
        "lanczos": engines.LocalBound(variances="lanczos", rank=8),
    }
    for name, engine in chosen.items():
        yield f"design/{name}", partial(designed, engine, None, potentials.Laplace(scale=0.2))
    filters = sparse.vstack([sparse.eye_array(16), finite_differences(16)])
    yield "design/filters", partial(designed, "gkl", filters, potentials.Laplace(scale=0.2))
    yield "design/student-t", partial(designed, "gkl", None, potentials.StudentT(3.0, 0.0, 0.2))


def quadrature_cases() -> Iterator[Case]:
    plane = Gaussian([0.0, 0.0], 1.0)
    for acquisition in ("integral-variance", "uncertainty", "ucb"):
        for warp in (None, "wsabi-l", "wsabi-m"):
            case = partial(integrated, plane, hyperparameters="ml", acquisition=acquisition, warp=warp)
            yield f"quadrature/{acquisition}/{warp}", case
    measures = {"box": Uniform([-1.0], [2.0]), "mixture": GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [0.2, 0.5])}
    for kernel in ("rbf", "matern32", "matern52", "auto"):
        for name, measure in measures.items():
            yield f"quadrature/{kernel}/{name}", partial(integrated, measure, 12, kernel=kernel)
    points = plane.sample(12, random_state=0)

    def conditioned() -> Numbers:
        belief = BayesianQuadrature(plane).integrate(peak, 14, random_state=1)
        return of_integral(belief)

    def log_joint(t: Any) -> Any:
        return log_sigmoid(t @ np.array([1.0, -0.5])) - 0.5 * np.sum(t**2, axis=1)

    def gradient() -> Numbers:
        return of_gradient(GaussianQuadratureGradient(log_joint).estimate(np.zeros(2), np.eye(2), random_state=0))

    yield "quadrature/object", conditioned
    yield "quadrature/monte-carlo", lambda: of_integral(monte_carlo(peak, plane, 100, random_state=0))
    wide = Gaussian([0.0, 0.0], 2.0)
    yield "quadrature/importance", lambda: of_integral(importance_sampling(peak, plane, wide, 100, random_state=0))
    yield "quadrature/gradient", gradient
    yield "quadrature/score", lambda: of_gradient(score_gradient(log_joint, np.zeros(2), np.eye(2), 50, 0))
    yield "quadrature/subsample", lambda: flat("subsample", tuple(subsample(points, 5, random_state=0)))


# --- swag, where PyTorch is -------------------------------------------------------------------------------------------


def swag_cases() -> Iterator[Case]:
    try:
        import torch
        from torch import nn

        from latlin.swag import FactorPosterior
    except ImportError:
        return

    def collected(method: str) -> Numbers:
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        posterior = FactorPosterior(net, rank=2, method=method)
        generator = torch.Generator().manual_seed(1)
        for _ in range(30):
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
            posterior.collect(net)
        density = posterior.density
        return flat("density", (density.mean, density.noise)) | flat("draw", posterior.draw(random_state=0))

    for method in ("online-em", "gradient", "swag-diag", "swag"):
        yield f"swag/{method}", partial(collected, method)


# --- write and check --------------------------------------------------------------------------------------------------

PARTS = (
    inference_cases,
    linear_cases,
    process_cases,
    factor_cases,
    mixture_cases,
    block_cases,
    design_cases,
    quadrature_cases,
    swag_cases,
)


def run(only: str = "", slow: float = 2.0) -> Numbers:
    """All numbers by name; cases that take longer than `slow` seconds are named on standard error."""
    numbers: Numbers = {}
    for part in PARTS:
        began = time.perf_counter()
        for name, case in part():
            if only not in name:
                continue
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = case()
                except REFUSALS as error:
                    found = {"refused": type(error).__name__, "sentence": str(error)}
            numbers |= {f"{name}:{key}": np.asarray(value) for key, value in found.items()}
            if time.perf_counter() - start > slow:
                print(f"{name} took {time.perf_counter() - start:.1f} s", file=sys.stderr)
        print(f"{part.__name__}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    return numbers


def difference(new: Any, old: Any) -> float:
    """The largest difference relative to the largest entry of the old array; infinite for other shapes or words."""
    if new.dtype.kind == "U" or old.dtype.kind == "U":
        return 0.0 if np.array_equal(new.astype(str), old.astype(str)) else np.inf
    if new.shape != old.shape or not np.array_equal(np.isfinite(new), np.isfinite(old)):
        return np.inf
    there = np.isfinite(old)
    new, old = new[there].astype(float), old[there].astype(float)
    if not old.size:
        return 0.0
    return float(np.abs(new - old).max() / (np.abs(old).max() or 1.0))


def case_of(name: str) -> str:
    return name.split(":")[0]


def check(path: str, tolerance: float, only: str) -> int:
    """How many names differ, each printed with its difference.

    Sentences of refusals may change, and a case that was refused may be fitted now: that is said, and not counted.
    """
    with np.load(path) as stored:
        old = {name: stored[name] for name in stored.files if only in case_of(name)}
    new = run(only)
    opened = {case_of(name) for name in old if name.endswith(":refused") and name not in new}
    found = []
    for name in sorted(old.keys() | new.keys()):
        if name.endswith(":sentence") or case_of(name) in opened:
            continue
        if name not in new or name not in old:
            found.append(f"{name}: {'missing' if name not in new else 'new'}")
        elif not (size := difference(new[name], old[name])) <= tolerance:
            found.append(f"{name}: {size:.1e}")
    said = [f"{name}: refused before, fitted now" for name in sorted(opened)]
    if found:
        said.append("if loops were compiled in this run, run it a second time before you believe these:")
    print("\n".join([*said, *found, f"{len(found)} of {len(old)} names differ by more than {tolerance:g}"]))
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("file")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.action == "check":
        return int(check(given.file, given.tolerance, given.only) > 0)
    numbers = run(given.only)
    np.savez_compressed(given.file, **numbers)
    refused = sum(name.endswith(":refused") for name in numbers)
    print(f"{len(numbers)} arrays of {len({case_of(name) for name in numbers})} cases, {refused} of them refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
