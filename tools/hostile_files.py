"""Damaged and forged files of every kind: each is refused with a ValueError of one sentence, or holds the same numbers.

    python tools/hostile_files.py 2000          so many files of each kind, seeds 0, 1, 2, …
    python tools/hostile_files.py 2000 gp       of one kind
    python tools/hostile_files.py 500 gp 1500   of one kind, seeds 1500, 1501, …
    python tools/hostile_files.py keep FOLDER   small files and their numbers, for other versions to read

A damaged file has bytes flipped, cut off, doubled or moved. A forged one has right digests, as whoever edits a file can
compute them: parts of its header are replaced, its arrays have other shapes, kinds of numbers or values. A forged file
may load, as it is then a file like any other, but nothing other than a ValueError may come out, neither when it is read
nor when what was read is asked. Reading takes at most three times the size of the file, and eight MiB.

One line per kind: how the files were taken, how many were different (small files have few places to forge, and a file
that came before is taken as it was then), the largest memory beyond three times the file, and the time. Failures are
printed with their seeds, and the search goes on.
"""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel

import latlin
from latlin import (
    GaussianFactor,
    LatentLinearModel,
    SiteFactor,
    covariances,
    engines,
    infer,
    linear,
    potentials,
    priors,
)
from latlin.additive import AdditiveModel
from latlin.distributed.blocks import LocalBlocks
from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    MatrixFactorization,
    MixedFactorAnalysis,
    NoisyICA,
    TrilinearFactorization,
)
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, Vecchia
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.archive import Archive, read_archive, write_archive
from latlin.numerics.stored import ROOMS, import_room

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = X @ [1.0, -1.0, 0.5] + 0.3 * RNG.standard_normal(30)
#: bytes that do not grow with the file; arrays of another kind can make a kernel compile anew
SPARE = 8 * 2**20


class Kind(NamedTuple):
    """A kind of file: what is saved, the numbers that it stands for, and how it is written and read."""

    make: Callable[[], Any]
    numbers: Callable[[Any], Any]
    load: Callable[[Path], Any] = latlin.load
    save: Callable[[Any, Path], None] = lambda made, path: made.save(path)


def _model(rows: Any = X) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=rows.shape[1]), SiteFactor(rows, potentials.Logit(Y > 0))])


def _coordinates() -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(cov=np.eye(3) + 0.3), SiteFactor(None, potentials.Laplace(Y[:3], 0.5))])


def _walk() -> LatentLinearModel:
    """A model with a sparse precision."""
    precision = sparse.diags_array([2.1, -1.0, -1.0], offsets=[0, 1, -1], shape=(8, 8))
    sites = SiteFactor(sparse.eye_array(8, format="csr"), potentials.Logit(Y[:8] > 0))
    return LatentLinearModel([GaussianFactor(precision=sparse.csr_array(precision)), sites])


def _point(model: Callable[[], Any]) -> Kind:
    return Kind(lambda: infer(model(), "map"), lambda post: (post.mean, post.log_evidence))


def _posterior(model: Callable[[], Any], engine: Any) -> Kind:
    return Kind(lambda: infer(model(), engine), lambda post: (post.mean, post.variance, post.logpdf(post.mean)))


def _predicting(make: Callable[[], Any]) -> Kind:
    return Kind(make, lambda model: model.predict(X))


def _process(approximation: Any, columns: int = 3, **options: Any) -> Kind:
    def make() -> Any:
        process = GaussianProcessRegressor(approximation=approximation, max_iter=3, random_state=0, **options)
        return process.fit(X[:, :columns], Y)

    return Kind(make, lambda model: model.predict(X[:, :columns]))


def _on_a_grid() -> Any:
    points = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0), indexing="ij"), axis=-1).reshape(-1, 2)
    return GaussianProcessRegressor(RBF([1.0, 1.0]), approximation="grid", max_iter=3, **ONE_SCALE).fit(points, Y[:20])


def _additive(formula: str, **options: Any) -> Kind:
    make = lambda: AdditiveModel(formula, **options).fit(TABLE, graph=RING)  # noqa: E731
    return Kind(make, lambda model: model.predict(TABLE))


def _write_by_command(_: Any, path: Path) -> None:
    """The file of `latlin fit`."""
    from typer.testing import CliRunner

    from latlin.cli.app import app

    table = path.with_suffix(".csv")
    np.savetxt(table, np.column_stack([X, Y]), delimiter=",", header="a,b,c,y", comments="")
    ran = CliRunner().invoke(app, ["fit", str(table), "--target", "y", "--out", str(path), "--folds", "0", "--quiet"])
    if ran.exit_code:
        raise RuntimeError(ran.output)


def _resumed_fit(path: Path) -> Any:
    return infer(_model(), "gkl", checkpoint=path)


def _resumed_search(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GaussianProcessRegressor(max_iter=1, hyperparameters="maximise").fit(X[:9], Y[:9], checkpoint=path)


def _grouped(path: Path) -> Any:
    """The fit of rows in blocks with its first checkpoint at `path`, whose other checkpoints are not kept."""
    base = path.with_suffix(".climb")
    first = base.with_name(f"{base.name}.0")
    for other in path.parent.glob(f"{base.name}.*"):
        other.unlink()
    if path.exists():
        shutil.copy(path, first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GroupFactorAnalysis(2, scale="feature", max_iter=30, random_state=0)
        model.fit(LocalBlocks.of(X, rows=15), groups=["a", "a", "b"], checkpoint=base)
    if not path.exists():
        shutil.copy(first, path)
    return model


def _loaded_model(path: Path) -> Any:
    from latlin.cli.models import load_model

    return load_model(path).estimator


POSITIVE = np.exp(0.5 * Y)
COUNTS = np.round(np.minimum(POSITIVE, 9.0))
CLASSES = np.digitize(Y, [-0.7, 0.7])
TABLE = {"y": Y, "x": X[:, 0], "t": np.arange(30) % 8, "g": np.resize(list("abc"), 30), "area": np.arange(30) % 6}
TABLE |= {"n": COUNTS, "o": CLASSES}
RING = {k: [(k - 1) % 6, (k + 1) % 6] for k in range(6)}
#: an average over scales holds the same parts again and again; "linear", "logistic" and "gp" have one
ONE_SCALE: Any = {"hyperparameters": "maximise"}
LINEAR: dict[str, Callable[[], Any]] = {
    "linear": lambda: linear.BayesianLinearRegression().fit(X, Y),
    "robust": lambda: linear.RobustRegression(**ONE_SCALE).fit(X, Y),
    "sparse": lambda: linear.SparseRegression(**ONE_SCALE).fit(X, Y),
    "quantile": lambda: linear.BayesianQuantileRegression(**ONE_SCALE).fit(X, Y),
    "probit": lambda: linear.BayesianProbitRegression(**ONE_SCALE).fit(X, Y > 0),
    "softmax": lambda: linear.BayesianSoftmaxRegression(**ONE_SCALE).fit(X, CLASSES),
    "multinomial-probit": lambda: linear.BayesianMultinomialProbitRegression(**ONE_SCALE).fit(X, CLASSES),
    "ordinal": lambda: linear.BayesianOrdinalRegression(**ONE_SCALE).fit(X, CLASSES),
    "poisson": lambda: linear.BayesianPoissonRegression(**ONE_SCALE).fit(X, COUNTS),
    "count": lambda: linear.BayesianCountRegression(**ONE_SCALE).fit(X, COUNTS),
    "binomial": lambda: linear.BayesianBinomialRegression(**ONE_SCALE).fit(X, COUNTS, trials=np.full(30, 9.0)),
    "gamma": lambda: linear.BayesianGammaRegression(**ONE_SCALE).fit(X, POSITIVE),
    "beta": lambda: linear.BayesianBetaRegression(**ONE_SCALE).fit(X, POSITIVE / (1.0 + POSITIVE)),
    "survival": lambda: linear.BayesianSurvivalRegression(**ONE_SCALE).fit(X, POSITIVE, event=X[:, 0] > -1.0),
}
PROCESSES = {
    "gp": _process("exact"),
    "gp-inducing": _process(Inducing(8), **ONE_SCALE),
    "gp-vecchia": _process(Vecchia(5), **ONE_SCALE),
    "gp-state-space": _process("state-space", 1, kernel=Matern(1.0, nu=1.5), **ONE_SCALE),
    "gp-grid": Kind(_on_a_grid, lambda model: model.predict(np.ones((3, 2)))),
    "gp-counts": Kind(
        lambda: GaussianProcessRegressor(likelihood="poisson", optimizer=None).fit(X, COUNTS),
        lambda model: model.predict(X),
    ),
    "gp-classifier": Kind(
        lambda: GaussianProcessClassifier(optimizer=None).fit(X, Y > 0),
        lambda model: model.predict_proba(X),
    ),
}
FACTORS = {
    "factor": Kind(lambda: FactorAnalysis(1).fit(X), lambda model: model.score_samples(X)),
    "stream": Kind(
        lambda: FactorAnalysis(1, method="online-em").partial_fit(X),
        lambda model: model.score_samples(X),
    ),
    "binary": Kind(
        lambda: BinaryFactorAnalysis(2, n_init=1, random_state=0).fit(X),
        lambda model: model.transform(X),
    ),
    "group": Kind(
        lambda: GroupFactorAnalysis(2, random_state=0).fit({"a": X[:, :2], "b": X[:, 1:]}),
        lambda model: model.transform({"a": X[:, :2], "b": X[:, 1:]}),
    ),
    "ica": Kind(lambda: NoisyICA(2, random_state=0).fit(X), lambda model: model.transform(X)),
    "matrix": Kind(
        lambda: MatrixFactorization(1, random_state=0, max_iter=50).fit(X),
        lambda model: model.transform(X),
    ),
    "trilinear": Kind(
        lambda: TrilinearFactorization(1, max_iter=20).fit(np.resize(X, (5, 4, 3))),
        lambda model: model.predict_cells([0, 1], [1, 2], [0, 2]),
    ),
    "mixed": Kind(
        lambda: MixedFactorAnalysis(1, random_state=0, max_iter=50).fit(X),
        lambda model: model.transform(X),
    ),
}
KINDS: dict[str, Kind] = {
    "posterior": _posterior(_model, "gkl"),
    # three copies of this one are more than the bytes that do not grow
    "large-posterior": _posterior(lambda: LatentLinearModel([GaussianFactor(cov=np.eye(600) + 0.3)]), "exact"),
    "chevron": _posterior(_model, engines.GaussianKL(covariance="chevron", rank=1)),
    "mean-field": _posterior(_coordinates, "mean-field"),
    "ai-kl": _posterior(_coordinates, "ai-kl"),
    "logistic": Kind(
        lambda: linear.BayesianLogisticRegression().fit(X, np.where(Y > 0, "yes", "no")),
        lambda model: model.predict_proba(X),
    ),
    **{name: _predicting(make) for name, make in LINEAR.items()},
    **PROCESSES,
    "mixture": Kind(
        lambda: BayesianGaussianMixture(2, random_state=0).fit(X),
        lambda model: model.score_samples(X),
    ),
    **FACTORS,
    "additive": _additive("y ~ x + (1 | g) + s(t, k=5)", hyperparameters="fixed"),
    "additive-maps": _additive("y ~ bym2(area) + rw2(t) + gp(x)", hyperparameters="fixed"),
    "additive-integrated": _additive("n ~ x + (1 | g)", family="poisson"),
    "command": Kind(Path, lambda model: model.coef_, _loaded_model, _write_by_command),
    "checkpoint": Kind(Path, lambda post: (post.mean, post.variance), _resumed_fit, lambda _, path: _resumed_fit(path)),
    "group-checkpoint": Kind(Path, lambda model: model.transform(X), _grouped, lambda _, path: _grouped(path)),
    "gp-checkpoint": Kind(Path, lambda model: model.predict(X), _resumed_search, lambda _, path: _resumed_search(path)),
}


def _frame() -> Any:
    import pandas as pd

    days = pd.date_range("2020-01-01", periods=30)
    return pd.DataFrame({"y": Y, "x": X[:, 0], "word": np.resize(["red", "green", "blue"], 30), "day": days})


def _covariance(kind: Any) -> Kind:
    return _posterior(_model, engines.GaussianKL(covariance=kind))


def _classes(optimizer: Any = None, y: Any = CLASSES, columns: int = 3, **options: Any) -> Kind:
    make = lambda: GaussianProcessClassifier(optimizer=optimizer, **options).fit(X[:, :columns], y)  # noqa: E731
    return Kind(make, lambda model: model.predict_proba(X[:, :columns]))


def _mixture(fit: str = "fit", **options: Any) -> Kind:
    make = lambda: getattr(BayesianGaussianMixture(2, random_state=0, **options), fit)(X)  # noqa: E731
    return Kind(make, lambda model: model.score_samples(X))


#: the same classes with other parts
FURTHER: dict[str, Kind] = {
    "map": _point(_model),
    **{name: _posterior(_model, name) for name in ("laplace", "lvb", "ep", "t-kl")},
    "diagonal": _covariance("diagonal"),
    "banded": _covariance(covariances.Banded(1)),
    "low-rank": _covariance(covariances.LowRank(1)),
    "subspace": _covariance(covariances.Subspace(2)),
    "block-diagonal": _covariance(covariances.BlockDiagonal([[0, 1], [2]])),
    "split": _posterior(_model, engines.GaussianKL(components=2)),
    "skew": _posterior(_coordinates, engines.AffineKL(base="skew-normal")),
    "walk": _posterior(_walk, "laplace"),
    "estimated": Kind(
        lambda: infer(_walk(), engines.GaussianKL(covariance="estimated")), lambda post: (post.mean, post.variance)
    ),
    "power-ep": _predicting(
        lambda: linear.BayesianLogisticRegression(engine=engines.ExpectationPropagation(power=0.9), **ONE_SCALE).fit(
            X, Y > 0
        )
    ),
    "one-against-rest": _predicting(lambda: linear.BayesianLogisticRegression(**ONE_SCALE).fit(X, CLASSES)),
    "table": Kind(
        lambda: linear.BayesianLinearRegression(**ONE_SCALE).fit(_frame(), "y", dates=["day"]),
        lambda model: model.predict(_frame()),
    ),
    "relevances": _predicting(lambda: linear.BayesianLinearRegression(ard=True, **ONE_SCALE).fit(X, Y)),
    "horseshoe": _predicting(lambda: linear.SparseRegression(prior="horseshoe", **ONE_SCALE).fit(X, Y)),
    "spike-and-slab": _predicting(lambda: linear.SparseRegression(prior="spike-and-slab", **ONE_SCALE).fit(X, Y)),
    "hurdle": _predicting(lambda: linear.BayesianCountRegression("hurdle-poisson", **ONE_SCALE).fit(X, COUNTS)),
    "linear-stream": _predicting(lambda: linear.BayesianPoissonRegression(prior_scale=1.0).partial_fit(X, COUNTS)),
    "gp-joint": _classes("l-bfgs-b", max_iter=3, multi_class="joint"),
    "gp-joint-inducing": _classes("l-bfgs-b", max_iter=3, multi_class="joint", approximation=Inducing(6), **ONE_SCALE),
    "gp-one-against-rest": _classes(multi_class="one-vs-rest", engine="ep"),
    "gp-vecchia-classes": _classes(y=Y > 0, approximation=Vecchia(4)),
    "gp-chain-classes": _classes(y=Y > 0, columns=1, kernel=Matern(1.0, nu=1.5), approximation="state-space"),
    "gp-integrated": Kind(
        lambda: GaussianProcessRegressor(
            RBF(1.0) + WhiteKernel(0.1), hyperparameters="integrate", priors=priors.HalfNormal(2.0)
        ).fit(X[:12], Y[:12]),
        lambda model: model.predict(X),
    ),
    "gp-mean-field": Kind(
        lambda: GaussianProcessRegressor(likelihood="student-t", engine="mean-field", optimizer=None).fit(X, Y),
        lambda model: model.predict(X),
    ),
    **{f"mixture-{kind}": _mixture(covariance=kind) for kind in ("diagonal", "tied", "spherical")},
    "mixture-known": _mixture(covariance="fixed", fixed_covariance=1.0, weight_prior="stick-breaking"),
    "mixture-stream": _mixture("partial_fit"),
    "mixture-gradient": _mixture(covariance="fixed", fixed_covariance=1.0, algorithm="pathwise", max_iter=20),
    "additive-walks": _additive("y ~ C(g) + ar1(t) + seasonal(t, 4) + besag(area)", hyperparameters="fixed"),
    "additive-surface": _additive("y ~ te(x, t, k=5) + lattice(area, t)", hyperparameters="fixed"),
    "additive-counts": _additive("n ~ x + (1 + x | g)", family="negative-binomial", hyperparameters="maximise"),
    "additive-ordinal": _additive("o ~ x", family="ordinal", hyperparameters="maximise"),
}
KINDS |= FURTHER


def saved(kind: str, folder: Path) -> Path:
    """A file of this kind; several processes may share the folder."""
    path, own = folder / f"{kind}.latlin", folder / f"{kind}.{os.getpid()}.latlin"
    if not path.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[kind].save(KINDS[kind].make(), own)
        own.replace(path)
    return path


#: kinds with small files, which the tests keep from the lowest versions of NumPy, SciPy and the others that we allow
TRAVELLING = (
    "posterior",
    "chevron",
    "ai-kl",
    "softmax",
    "gp-counts",
    "mixture",
    "factor",
    "stream",
    "binary",
    "group",
    "ica",
    "mixed",
    "additive",
)


def keep(folder: Path) -> None:
    """Write a file of each travelling kind, and `numbers.npz` with what they answer."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {}
    for name in TRAVELLING:
        kind, path = KINDS[name], saved(name, folder)
        for place, array in enumerate(_arrays(kind.numbers(kind.load(path)))):
            numbers[f"{name} {place}"] = array
    np.savez(folder / "numbers.npz", **numbers)


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes of a file with something wrong."""
    data = bytearray(content)
    here, there = sorted(rng.integers(0, len(data), 2))
    choice = rng.integers(6)
    if choice == 0:
        data[here] ^= 1 << int(rng.integers(8))
    elif choice == 1:
        for place in rng.integers(0, len(data), int(rng.integers(1, 30))):
            data[place] = int(rng.integers(256))
    elif choice == 2:
        del data[here:]
    elif choice == 3:
        del data[here:there]
    elif choice == 4:
        data[here:here] = data[here:there]
    else:  # the directory at the end, where sizes and places are
        place = len(data) - 1 - int(rng.integers(min(len(data), 400)))
        data[place] = int(rng.integers(256))
    return bytes(data)


ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**70,
    1e400,
    float("nan"),
    "",
    "x" * 1000,
    [],
    {},
    [[]],
    {"array": "nothing"},
)
ODD_CLASSES = ("os.system", "latlin.densities.Gaussian", "latlin.potentials.Custom", "latlin.mixture.Full", "eval")


def forge(archive: Archive, target: Path, rng: np.random.Generator) -> None:
    """The file of what is in an archive with something else in it, and right digests."""
    header, arrays = copy.deepcopy(archive.header), dict(archive.arrays)
    choice = rng.integers(4) if arrays else 0
    if choice == 0:
        _replace_somewhere(header, rng)
    elif choice == 1:
        arrays.pop(str(rng.choice(sorted(arrays))))
    elif choice == 2:
        name = str(rng.choice(sorted(arrays)))
        arrays[name] = _other_array(arrays[name], rng)
    else:
        first, second = rng.choice(sorted(arrays), 2)
        arrays[str(first)], arrays[str(second)] = arrays[str(second)], arrays[str(first)]
    write_archive(target, archive.kind, header, arrays)


def _replace_somewhere(header: dict[str, Any], rng: np.random.Generator) -> None:
    places = list(_places(header))
    container, key = places[int(rng.integers(len(places)))]
    choice = rng.integers(4)
    if choice == 0 and isinstance(container, dict):
        del container[key]
    elif choice == 1 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif key == "class":
        container[key] = ODD_CLASSES[int(rng.integers(len(ODD_CLASSES)))]
    else:
        container[key] = copy.deepcopy(ODD_VALUES[int(rng.integers(len(ODD_VALUES)))])


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)


def _other_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    choice = rng.integers(6)
    if choice == 0:
        return array.reshape(-1)[:-1] if array.size else np.zeros(3)
    if choice == 1:
        return np.stack([array, array])
    if choice == 2:
        return np.zeros((0, *array.shape[1:]))
    if choice == 3:
        return np.full(array.shape, np.nan)
    if choice == 4:
        return np.full(array.shape, "text")
    return np.full(array.shape, -(2**40))


class Taken(NamedTuple):
    """How a file was taken, and the bytes that reading it took beyond three times its size."""

    how: str
    beyond: int


def outcome(path: Path, kind: Kind, expected: Any, forged: bool) -> Taken:
    """How a file was taken; an AssertionError where that is not allowed."""
    model = refused = None
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind.load(path)
    except ValueError as error:
        refused = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    beyond = peak - 3 * path.stat().st_size
    assert beyond <= SPARE, f"{peak} bytes for a file of {path.stat().st_size}"
    if refused is not None:
        assert "\n" not in refused, f"more than one sentence: {refused}"
        assert "allow_pickle" not in refused, refused
        return Taken("refused", beyond)
    if forged:
        return Taken(_answer(model, kind.numbers), beyond)
    for ours, theirs in zip(_arrays(kind.numbers(model)), _arrays(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return Taken("the same", beyond)


def _answer(model: Any, numbers: Callable[[Any], Any]) -> str:
    """Ask a model of a forged file: it answers, or says with a ValueError that it does not; anything else is raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers(model)
    except ValueError:
        return "loaded, but does not answer"
    return "loaded"


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in value] if isinstance(value, tuple) else [np.asarray(value)]


class Search(NamedTuple):
    """How the files of one kind were taken, how many differed, the most memory, and what went wrong at which seeds."""

    found: Counter[str]
    different: int
    beyond: int
    failures: list[str]


def search(name: str, count: int, folder: Path, first: int = 0) -> Search:
    """So many damaged and forged files of one kind, from a first seed on, and how they were taken."""
    path, kind = saved(name, folder), KINDS[name]
    for room in ROOMS:  # what is imported and compiled once is no part of reading a file
        import_room(room)
    content, expected = path.read_bytes(), kind.numbers(kind.load(path))
    archive, target = read_archive(path), folder / f"{name}.damaged"
    found, failures = Counter[str](), []
    before: dict[tuple[bool, bytes], Taken] = {}
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, len(name)])
        forged = seed % 2 == 1
        if forged:
            forge(archive, target, rng)
        else:
            target.write_bytes(damage(content, rng))
        digest = forged, hashlib.sha256(target.read_bytes()).digest()
        if digest not in before:
            try:
                before[digest] = outcome(target, kind, expected, forged)
            except Exception as error:
                failures.append(f"{name}, seed {seed}: {type(error).__name__}: {error}\n{traceback.format_exc()}")
                before[digest] = Taken("wrongly", 0)
        found[f"{'forged' if forged else 'damaged'} {before[digest].how}"] += 1
    return Search(found, len(before), max((taken.beyond for taken in before.values()), default=0), failures)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["keep"]:
        return keep(Path(arguments[1]))
    first = int(arguments.pop()) if len(arguments) > 1 and arguments[-1].isdigit() else 0
    count, kinds = int(arguments[0]) if arguments else 100, arguments[1:] or list(KINDS)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            started = time.perf_counter()
            taken = search(kind, count, Path(folder), first)
            failed += len(taken.failures)
            print(*taken.failures, sep="\n", end="")
            print(
                f"{kind:19} {dict(sorted(taken.found.items()))} {taken.different} different, "
                f"{len(taken.failures)} failures, {taken.beyond / 2**20:+.1f} MiB, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main(sys.argv[1:])
