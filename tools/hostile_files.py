"""Damaged and forged files of every kind: each is refused with a ValueError of one sentence, or holds the same numbers.

    python tools/hostile_files.py 2000          so many files of each kind, seeds 0, 1, 2, …
    python tools/hostile_files.py 2000 gp       of one kind

A damaged file has bytes flipped, cut off, doubled or moved. A forged one has right digests, as whoever edits a file can
compute them: parts of its header are replaced, its arrays have other shapes, kinds of numbers or values. A forged file
may load, as it is then a file like any other, but nothing other than a ValueError may come out. Reading takes at most
three times the size of the file, and eight MiB.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, linear, potentials
from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    MixedFactorAnalysis,
    NoisyICA,
)
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.archive import read_archive, write_archive
from latlin.numerics.stored import ROOMS, import_room

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = X @ [1.0, -1.0, 0.5] + 0.3 * RNG.standard_normal(30)
#: bytes that do not grow with the file; arrays of another kind can make a kernel compile anew
SPARE = 8 * 2**20


def _model() -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=3), SiteFactor(X, potentials.Logit(Y > 0))])


def _coordinates() -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(cov=np.eye(3) + 0.3), SiteFactor(None, potentials.Laplace(Y[:3], 0.5))])


#: kind → what is saved, and the numbers that a file stands for
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "posterior": (lambda: infer(_model(), "gkl"), lambda post: (post.mean, post.covariance())),
    "chevron": (
        lambda: infer(_model(), engines.GaussianKL(covariance="chevron", rank=1)),
        lambda post: (post.mean, post.covariance()),
    ),
    "mean-field": (lambda: infer(_coordinates(), "mean-field"), lambda post: (post.mean, post.logpdf(X[:2]))),
    "ai-kl": (lambda: infer(_coordinates(), "ai-kl"), lambda post: (post.mean, post.logpdf(X[:2]))),
    "linear": (lambda: linear.BayesianLinearRegression().fit(X, Y), lambda model: model.predict(X)),
    "logistic": (
        lambda: linear.BayesianLogisticRegression().fit(X, np.where(Y > 0, "yes", "no")),
        lambda model: model.predict_proba(X),
    ),
    "gp": (lambda: GaussianProcessRegressor(max_iter=5).fit(X, Y), lambda model: model.predict(X)),
    "gp-classifier": (
        lambda: GaussianProcessClassifier(optimizer=None).fit(X, Y > 0),
        lambda model: model.predict_proba(X),
    ),
    "mixture": (
        lambda: BayesianGaussianMixture(2, random_state=0).fit(X),
        lambda model: model.score_samples(X),
    ),
    "factor": (lambda: FactorAnalysis(1).fit(X), lambda model: model.score_samples(X)),
    "stream": (
        lambda: FactorAnalysis(1, method="online-em").partial_fit(X),
        lambda model: model.score_samples(X),
    ),
    "binary": (
        lambda: BinaryFactorAnalysis(2, n_init=1, random_state=0).fit(X),
        lambda model: model.transform(X),
    ),
    "group": (
        lambda: GroupFactorAnalysis(2, random_state=0).fit({"a": X[:, :2], "b": X[:, 1:]}),
        lambda model: model.transform({"a": X[:, :2], "b": X[:, 1:]}),
    ),
    "ica": (lambda: NoisyICA(2, random_state=0).fit(X), lambda model: model.transform(X)),
    "mixed": (
        lambda: MixedFactorAnalysis(1, random_state=0, max_iter=50).fit(X),
        lambda model: model.transform(X),
    ),
}


def saved(kind: str, folder: Path) -> Path:
    """A file of this kind."""
    path = folder / f"{kind}.latlin"
    if not path.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[kind][0]().save(path)
    return path


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


def forge(path: Path, target: Path, rng: np.random.Generator) -> None:
    """The file with something else in it, and right digests."""
    kind, header, arrays = read_archive(path)
    header, arrays = copy.deepcopy(header), dict(arrays)
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
    write_archive(target, kind, header, arrays)


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


def outcome(path: Path, numbers: Callable[[Any], Any], expected: Any, forged: bool) -> str:
    """How a file was taken; an AssertionError where that is not allowed."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = latlin.load(path)
    except ValueError as error:
        text = str(error)
        assert "\n" not in text, f"more than one sentence: {text}"
        assert "allow_pickle" not in text, text
        return "refused"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 3 * path.stat().st_size + SPARE, f"{peak} bytes for a file of {path.stat().st_size}"
    if forged:
        return _answer(model, numbers)
    for ours, theirs in zip(_arrays(numbers(model)), _arrays(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return "the same"


def _answer(model: Any, numbers: Callable[[Any], Any]) -> str:
    """Ask a model of a forged file: whatever it says, the process must survive it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers(model)
    except Exception:
        return "loaded, but does not answer"
    return "loaded"


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in value] if isinstance(value, tuple) else [np.asarray(value)]


def search(kind: str, count: int, folder: Path) -> Counter[str]:
    """So many damaged and forged files of one kind, and how they were taken."""
    path, numbers = saved(kind, folder), KINDS[kind][1]
    for room in ROOMS:  # what is imported and compiled once is no part of reading a file
        import_room(room)
    latlin.load(path)
    content, expected = path.read_bytes(), numbers(latlin.load(path))
    found: Counter[str] = Counter()
    target = folder / f"{kind}.damaged"
    for seed in range(count):
        rng = np.random.default_rng([seed, len(kind)])
        forged = seed % 2 == 1
        if forged:
            forge(path, target, rng)
        else:
            target.write_bytes(damage(content, rng))
        try:
            taken = outcome(target, numbers, expected, forged)
        except BaseException as error:
            error.add_note(f"{kind}, seed {seed}")
            raise
        found[f"{'forged' if forged else 'damaged'} {taken}"] += 1
    return found


def main(arguments: list[str]) -> None:
    count, kinds = int(arguments[0]) if arguments else 100, arguments[1:] or list(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            started = time.perf_counter()
            found = search(kind, count, Path(folder))
            print(f"{kind:14} {dict(sorted(found.items()))} {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
