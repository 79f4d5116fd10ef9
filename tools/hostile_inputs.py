"""Bad inputs over every public surface: each is refused in words that name the argument, or the answer holds no NaN.

    python tools/hostile_inputs.py                     every surface
    python tools/hostile_inputs.py options commands    some of them
    python tools/hostile_inputs.py --seed 3 rows       with other data and other places that are spoilt
    python tools/hostile_inputs.py --every 6           about one input of six, by chance

An error must be a ValueError that names the argument. What scikit-learn says in its own words is allowed for rows and
responses, as is its TypeError for rows of a wrong kind, and an OSError for the path of a file. Nothing may take longer
than twenty seconds. What is taken although it is odd must answer with numbers where the input was finite.
"""

from __future__ import annotations

import inspect
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.additive import AdditiveModel
from latlin.datasets.table import read_table
from latlin.design import SequentialDesign
from latlin.distributed import LocalBlocks, open_blocks
from latlin.factor import TrilinearFactorization

TESTS = Path(__file__).parents[1] / "tests"
#: seconds that an input may take: of the processor, and by the clock, as others may be at work; bytes of memory
LONGEST, PATIENCE, MEMORY = 20.0, 200.0, 8 * 2**30
#: what scikit-learn says of rows and responses without naming them
SCIKIT_LEARN = (
    "Expected 2D array",
    "Found array with",
    "inconsistent numbers of samples",
    "Complex data not supported",
    "Unknown label type",
    "Input contains",
    "should be a 1d array",
    "Found unknown",
    "is expecting",
    "dtype='numeric' is not compatible",
    "Input should have at least 1 dimension",
    "Only one class",
    "The number of classes",
    "y_true",
    "inhomogeneous shape",
)


class Case(NamedTuple):
    """One call with one bad value: where, of which argument, what, whether it is finite, and the call itself."""

    surface: str
    name: str
    argument: str
    bad: str
    finite: bool
    call: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.surface}: {self.name}, {self.argument} is {self.bad}"


class Slow(BaseException):
    """An input that takes too long."""


def _module(name: str) -> Any:
    """A module of the tests, which list calls and estimators with good arguments."""
    spec = spec_from_file_location(name, TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: what an option may be given, and whether it is a finite number
ODD: dict[str, tuple[Any, bool]] = {
    "a text": ("a", False),
    "an empty text": ("", False),
    "bytes": (b"a", False),
    "nothing": (None, False),
    "zero": (0, True),
    "less than zero": (-1, True),
    "NaN": (float("nan"), False),
    "infinite": (float("inf"), False),
    "below everything": (-float("inf"), False),
    "too large an integer": (2**70, True),
    "huge": (1e300, True),
    "tiny": (1e-300, True),
    "complex": (1j, False),
    "an empty list": ([], False),
    "a dict": ({}, False),
    "an object": (object(), False),
    "two numbers": (np.array([1.0, 2.0]), True),
    "a date": (np.datetime64("2020-01-01"), False),
    "a masked array": (np.ma.masked_array([1.0, 2.0], [False, True]), False),
}


def spoilt(good: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any, bool]]:
    """Arrays in the place of a good one, what they are, and whether they are finite numbers of its shape."""
    array = np.asarray(good)
    numbers = array.astype(float) if array.dtype.kind in "biuf" else np.arange(array.size, dtype=float)
    numbers = numbers.reshape(array.shape)
    place = tuple(int(rng.integers(n)) for n in array.shape)

    def with_one(value: Any, kind: Any = float) -> Any:
        other = numbers.astype(kind)
        other[place] = value
        return other

    yield from (
        ("nothing", None, False),
        ("a text", "a", False),
        ("a number", 3.0, False),
        ("an object", object(), False),
        ("a dict", {}, False),
        ("an empty list", [], False),
        ("without rows", array[:0], False),
        ("one row fewer", array[:-1], False),
        ("one axis more", array[None], False),
        ("flat", array.ravel()[: max(array.size - 1, 1)], False),
        ("with NaN", with_one(np.nan), False),
        ("with inf", with_one(np.inf), False),
        ("with -inf", with_one(-np.inf), False),
        ("with a text", with_one("a", object), False),
        ("with nothing inside", with_one(None, object), False),
        ("with a dict inside", with_one({}, object), False),
        ("with 10^400", with_one(10**400, object), False),
        ("complex", numbers + 1j, False),
        ("masked", np.ma.masked_array(numbers, with_one(1.0) == 1.0), False),
        ("dates", numbers.astype(np.int64).astype("datetime64[D]"), False),
        ("spans of time", numbers.astype(np.int64).astype("timedelta64[D]"), False),
        ("ragged", [[1.0], [1.0, 2.0]], False),
        ("with 1e300", with_one(1e300), True),
        ("times 1e18", 1e18 * numbers, True),
        ("times 1e-300", 1e-300 * numbers, True),
        ("constant", np.ones_like(numbers), True),
        ("zero", np.zeros_like(numbers), True),
        ("with 2^63", with_one(2.0**63), True),
        ("near 10^9", 1e9 + np.arange(numbers.size, dtype=float).reshape(numbers.shape), True),
    )
    if array.ndim == 2:
        yield "sparse with NaN", sparse.csr_array(with_one(np.nan)), False
        yield "sparse and complex", sparse.csr_array(numbers + 1j), False
        yield "one column more", np.concatenate([array, array[:, :1]], axis=1), False


# --- Surfaces.


def constructors(_: np.random.Generator) -> Iterator[Case]:
    """Arguments of every public constructor and function."""
    tests = _module("test_wrong_arguments")
    Path("rows.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf8")  # for what reads a table
    for name, option in tests.CASES:
        for bad, (value, finite) in ODD.items():
            call = lambda n=name, o=option, v=value: tests.public(n)(**tests.GOOD[n] | {o: v})  # noqa: E731
            yield Case("constructors", name, option, bad, finite, call)


def options(_: np.random.Generator) -> Iterator[Case]:
    """Options of every engine and estimator."""
    tests = _module("test_options")

    def fitted(cls: Any, given: dict[str, Any]) -> Any:
        made = cls(**tests.NEEDED.get(cls, {}) | given)
        if cls is AdditiveModel:
            return made.fit(tests.TABLE).predict(tests.TABLE)
        if cls not in tests.ESTIMATORS:
            post = infer(tests.MODEL, made)
            return post.mean, post.variance
        made.fit(tests.X, tests.ESTIMATORS[cls], **tests.FIT_WITH.get(cls, {}))
        return _answer(made, tests.X)

    switches = tests.SWITCHES - {"random_state", "engine", "kernel"}
    for cls in [*(getattr(engines, name) for name in tests.ENGINES), *tests.ESTIMATORS]:
        for option in inspect.signature(cls).parameters:
            for bad, (value, finite) in ODD.items() if option not in switches else ():
                if option == "n_jobs" and bad == "less than zero":
                    continue  # all processors
                call = lambda c=cls, o=option, v=value: fitted(c, {o: v})  # noqa: E731
                yield Case("options", cls.__name__, option, bad, finite, call)


def _answer(model: Any, X: Any) -> Any:
    for name in ("predict_proba", "predict", "transform"):
        if hasattr(model, name):
            return getattr(model, name)(X)
    return None


def rows(rng: np.random.Generator) -> Iterator[Case]:
    """Rows, responses and what goes with them in `fit`."""
    for cls, y, needed in _estimators():
        good = {"X": rng.standard_normal((12, 3)), **({} if y is None else {"y": y}), **needed}
        takes = inspect.signature(cls.fit).parameters
        extra = {"sample_weight": np.ones(12), "offset": np.zeros(12), "exposure": np.ones(12), "event": np.ones(12)}
        good |= {name: value for name, value in extra.items() if name in takes}
        for argument in good:
            for bad, value, finite in spoilt(good[argument], rng):

                def call(c: Any = cls, a: str = argument, v: Any = value, g: dict[str, Any] = good) -> Any:
                    model = c().fit(**g | {a: v})
                    return _answer(model, g["X"])

                yield Case("rows", cls.__name__, argument, bad, finite, call)


def _estimators() -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    tests = _module("test_options")
    for cls, y in tests.ESTIMATORS.items():
        if cls is not AdditiveModel:
            yield cls, y, tests.FIT_WITH.get(cls, {})


#: good values of arguments of methods, by their names
KNOWN: dict[str, Any] = {
    "coverage": 0.9,
    "quantiles": (0.1, 0.9),
    "quantile": 0.5,
    "n_samples": 2,
    "count": 2,
    "n": 200,
    "random_state": 0,
    "actions": [0.0, 1.0],
    "loss": lambda action, y: np.zeros(np.shape(y)),
    "w": np.zeros(3),
    "H": np.eye(3),
    "H1": np.eye(3),
    "points": 5,
    "columns": [0, 1],
    "rows": [0, 1],
    "tables": [0, 1],
    "k": 1,
    "M": np.eye(3)[:1],
    "candidates": np.eye(3),
    "times": [0.5, 1.0],
    "time": [0.5, 1.0],
}
#: methods that are no answers, or have a surface of their own
OTHERS = {"fit", "fit_transform", "fit_predict", "partial_fit", "save", "load", "report", "get_params", "set_params"}
OTHERS |= {"score", "set_output", "get_metadata_routing", "to_html", "without_functions", "kl_bound"}


def answers(rng: np.random.Generator) -> Iterator[Case]:
    """Arguments of the methods of what is fitted."""
    for name, fitted, good in _fitted(rng):
        for method in sorted(dir(type(fitted))):
            if method.startswith(("_", "set_")) or method in OTHERS or method.endswith("_"):
                continue
            function = getattr(type(fitted), method)
            if not callable(function) or isinstance(function, type):
                continue
            about = [
                p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "sample_weight")
            ]
            known = KNOWN | good
            given = {p.name: known[p.name] for p in about if p.name in known and known[p.name] is not None}
            missing = [
                p.name for p in about if p.default is p.empty and p.name not in given and p.kind is not p.VAR_KEYWORD
            ]
            if missing:
                print(f"not asked: {name}.{method}, of which no good {', '.join(missing)} is known")
                continue
            yield from _spoilt_calls("answers", f"{name}.{method}", getattr(fitted, method), given, rng)


def _spoilt_calls(
    surface: str, name: str, call: Callable[..., Any], good: dict[str, Any], rng: np.random.Generator
) -> Iterator[Case]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**good)
    except ValueError:
        return  # it has no such answer
    for argument, value in good.items():
        scalar = np.ndim(value) == 0 if not isinstance(value, dict) else True
        bads = [(n, v, f) for n, (v, f) in ODD.items()] if scalar else list(spoilt(value, rng))
        for bad, other, finite in bads:
            made = lambda a=argument, v=other: call(**good | {a: v})  # noqa: E731
            yield Case(surface, name, argument, bad, finite, made)


def _fitted(rng: np.random.Generator) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What is fitted, and good arguments of its methods."""
    X = rng.standard_normal((12, 3))
    tests = _module("test_options")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cls, y, needed in _estimators():
            given = {} if y is None else {"y": y}
            fitted = cls().fit(X, **given, **needed)
            latent = np.zeros((12, np.shape(fitted.transform(X))[1])) if hasattr(fitted, "transform") else None
            yield cls.__name__, fitted, {"X": X, **given, **needed, "offset": np.zeros(12), "S": latent, "Z": latent}
        additive = AdditiveModel("y ~ x + (1 | g)", hyperparameters="fixed").fit(tests.TABLE)
        yield "AdditiveModel", additive, {"frame": tests.TABLE, "name": "x", "group": "g"}
        cells = TrilinearFactorization(1, max_iter=20).fit(rng.standard_normal((5, 4, 3)))
        yield "TrilinearFactorization", cells, {}
        for engine in ("gkl", "laplace", "ep", "lvb", "mean-field", "map", "t-kl"):
            model = tests.MODEL if engine != "mean-field" else _coordinates()
            yield f"Posterior by {engine}", infer(model, engine), {}
        yield "SequentialDesign", SequentialDesign(np.eye(3), potentials.Laplace(np.zeros(3)), 0.1), {"y": [0.5]}


def _coordinates() -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(dim=3), SiteFactor(None, potentials.Laplace(np.ones(3)))])


def sites(rng: np.random.Generator) -> Iterator[Case]:
    """What potentials are asked."""
    tests = _module("test_wrong_arguments")
    for name, given in tests.GOOD.items():
        if not name.startswith("potentials."):
            continue
        if name == "potentials.Custom":  # its function is the user's own
            continue
        made = tests.public(name)(**given | ({"low": 0.0} if name == "potentials.Truncated" else {}))
        x, v = np.zeros(2 if made.size is None else made.size), np.ones(2 if made.size is None else made.size)
        calls = {"log_density": {"x": x}, "derivatives": {"x": x}, "expected_log": {"mean": x, "var": v}}
        calls |= {"tilted_moments": {"mean": x, "var": v}, "predictive": {"mean": x, "var": v}}
        for method, good in calls.items():
            function = getattr(made, method)
            names = list(inspect.signature(function).parameters)[: len(good)]
            yield from _spoilt_calls(
                "sites", f"{name}.{method}", function, dict(zip(names, good.values(), strict=True)), rng
            )


FORMULAS = (
    *("", "y", "~ x", "y ~", "y ~ x ~ g", "y ~ nothing", "y ~ x +", "y ~ (x", "y ~ x)", "y ~ x | g", "y ~ 1e400"),
    *("y ~ (1 | nothing)", "y ~ (1 | )", "y ~ ( | g)", "y ~ (1 | g", "y ~ s()", "y ~ s(x, k=-1)", "y ~ s(x, k='a')"),
    *("y ~ s(x, k=2**70)", "y ~ s(g)", "y ~ rw1(g)", "y ~ rw2()", "y ~ ar1(x, x, x)", "y ~ seasonal(x)", "y ~ te(x)"),
    *("y ~ seasonal(x, 0)", "y ~ seasonal(x, 'a')", "y ~ besag(g)", "y ~ bym2(g)", "y ~ lattice(x)", "y ~ gp()"),
    *("y ~ gp(x, length=-1)", "y ~ __import__('os').system('true')", "y ~ x.__class__", "y ~ lambda: 1", "y ~ [x]"),
    *("y ~ x ** 2", "y ~ x % 2", "y ~ x @ x", "y ~ x if x else x", "y ~ 'x'", "y ~ None", "y ~ True", "y ~ x / 0"),
    *("y ~ log(x)", "y ~ log(-x)", "y ~ exp(1000 * x)", "y ~ sqrt(x)", "y ~ unknown(x)", "y ~ C(x, 3)", "y ~ 0"),
    *("y ~ -1", "y ~ x - x", "y ~ x:x", "y ~ x*g*x*g*x*g*x*g", "y ~ " + "x + " * 500 + "x", "y ~ " + "(" * 200 + "x"),
    *("y ~ ünï", "y ~ `x`", "y ~ x; y", "y ~ x\ny", "y ~ x # a", "log(y) ~ x", "g ~ x", "1 ~ x", "y ~ s(x) + s(x)"),
)


def formulas(rng: np.random.Generator) -> Iterator[Case]:
    """Formulas, and columns of their tables."""
    table = {"y": rng.standard_normal(12), "x": rng.standard_normal(12), "g": np.resize(["a", "b", "c"], 12)}

    def fitted(formula: str, columns: dict[str, Any]) -> Any:
        return AdditiveModel(formula, hyperparameters="fixed").fit(columns).predict(columns)

    for formula in FORMULAS:
        yield Case("formulas", "formula", "", f"{formula:.60}", False, partial(fitted, formula, table))
    for column in table:
        for bad, value, finite in spoilt(table[column], rng):
            call = partial(fitted, "y ~ x + (1 | g)", table | {column: value})
            yield Case("formulas", "table", column, bad, finite and column != "g", call)
    for bad, (value, _) in ODD.items():
        yield Case("formulas", "table", "", bad, False, partial(fitted, "y ~ x", value))


def files(_: np.random.Generator) -> Iterator[Case]:
    """Paths of files that are written and read."""
    post = infer(_coordinates(), "gkl")
    paths: dict[str, Any] = {name: value for name, (value, _) in ODD.items() if not isinstance(value, str | bytes)}
    paths |= {
        "empty": "",
        "a folder": ".",
        "in no folder": "nowhere/at.latlin",
        "with a zero": "a\0b",
        "long": "x" * 5000,
    }
    for bad, path in paths.items():
        yield Case("files", "save", "path", bad, False, partial(post.save, path))
        yield Case("files", "load", "path", bad, False, partial(latlin.load, path))
        call = partial(infer, _coordinates(), "gkl", checkpoint=path)
        yield Case("files", "infer", "checkpoint", bad, False, call)
        yield Case("files", "read_table", "path", bad, False, partial(read_table, path))


def blocks(rng: np.random.Generator) -> Iterator[Case]:
    """Rows in blocks."""
    good = {
        "X": rng.standard_normal((12, 3)),
        "y": rng.standard_normal(12),
        "weight": np.ones(12),
        "offset": np.zeros(12),
    }

    def fitted(given: dict[str, Any], size: Any = 5) -> Any:
        from latlin.linear import BayesianLinearRegression

        model = BayesianLinearRegression(prior_scale=1.0, noise_scale=1.0).fit(LocalBlocks.of(**given, rows=size))
        return model.coef_

    for argument in good:
        for bad, value, finite in spoilt(good[argument], rng):
            call = partial(fitted, good | {argument: value})
            yield Case("blocks", "LocalBlocks.of", argument, bad, finite, call)
    for bad, (value, _) in ODD.items():
        yield Case("blocks", "LocalBlocks.of", "rows", bad, False, partial(fitted, good, value))
        yield Case("blocks", "open_blocks", "", bad, False, partial(open_blocks, value))


WORDS = ("", "nothing", "-1", "0", "nan", "1e400", "é=1", "=1+1", "a,b,c", "x" * 3000, "a\tb", "../nowhere/at")


def commands(rng: np.random.Generator) -> Iterator[Case]:
    """Options of the command line."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from latlin.cli.app import app

    X = rng.standard_normal((30, 3)).round(3)
    lines = ["a,b,y,g,n", *(f"{a},{b},{a + b + c:.3f},{'uv'[i % 2]},{i % 5}" for i, (a, b, c) in enumerate(X))]
    Path("rows.csv").write_text("\n".join(lines), encoding="utf8")
    runner = CliRunner()

    def run(words: list[str]) -> None:
        ran = runner.invoke(app, words)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        if "Traceback" in ran.output:
            raise RuntimeError(ran.output)
        if ran.exit_code and len(ran.output) < 20:
            raise RuntimeError(f"ended with {ran.exit_code} and no word: {ran.output!r}")

    run(["fit", "rows.csv", "--target", "y", "--folds", "0", "--quiet", "--out", "m.latlin"])
    needed = {"fit": ["rows.csv", "--target", "y", "--folds", "0"], "predict": ["m.latlin", "rows.csv"]}
    needed |= {"compare": ["rows.csv", "--target", "y", "--folds", "0"], "report": ["m.latlin"]}
    needed |= {"effects": ["m.latlin"], "trend": ["rows.csv", "--target", "y", "--along", "a"]}
    for name, command in sorted(get_command(app).commands.items()):  # type: ignore[attr-defined]
        if name == "demo":
            continue
        base = [name, *needed.get(name, ["rows.csv"])]
        for param in command.params:
            for word in WORDS if not getattr(param, "is_flag", False) else ():
                if param.param_type_name == "option":
                    words = [*base, param.opts[0], word]
                else:
                    place = [p.name for p in command.params if p.param_type_name == "argument"].index(param.name)
                    words = [*base[: 1 + place], word, *base[2 + place :]]
                call = lambda w=words: run(w)  # noqa: E731
                yield Case("commands", name, param.name, repr(word[:20]), False, call)


SURFACES: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    surface.__name__: surface
    for surface in (constructors, options, rows, answers, sites, formulas, files, blocks, commands)
}


# --- The search.


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Slow


def complaint(case: Case) -> str | None:
    """How an input was taken where that is not allowed, else None."""
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = case.call()
    except ValueError as error:
        return None if _names(str(error), case) else f"does not name it: {error}"
    except TypeError as error:
        allowed = case.argument in ("X", "y") and ("sparse" in str(error).lower() or "must be" in str(error))
        return None if allowed else _described(error)
    except OSError as error:
        return None if case.surface in ("files", "commands") or "path" in case.argument else _described(error)
    except Slow:
        return f"takes more than {LONGEST:.0f} s"
    except Exception as error:
        return _described(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return "answers NaN to finite input" if case.finite and _has_nan(found) else None


def _names(text: str, case: Case) -> bool:
    if case.surface == "commands" or not case.argument or case.argument in text:
        return True
    if case.bad in ("without rows", "one row fewer", "an empty list", "flat") and ("rows" in text or "shape" in text):
        return True  # of two that differ in length either may be named
    if case.surface == "sites" and ("broadcast" in text or "shape" in text):
        return True  # shapes are those of NumPy's rules, and it says which do not fit
    return case.argument in ("X", "y", "sample_weight") and any(words in text for words in SCIKIT_LEARN)


def _described(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error!s:.200} ({Path(where.filename).name}:{where.lineno})"


def _has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    if isinstance(value, tuple | list):
        return any(map(_has_nan, value))
    return isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f" and bool(np.isnan(value).any())


def search(names: list[str], seed: int, every: int = 1) -> Counter[str]:
    """Every bad input of some surfaces, or a share of them; what is wrong is printed."""
    counts: Counter[str] = Counter()
    chance = np.random.default_rng([seed, every])
    for name in names:
        started, before = time.perf_counter(), counts.copy()
        for case in SURFACES[name](np.random.default_rng(seed)):
            if chance.integers(every):
                continue
            wrong = complaint(case)
            counts["inputs"] += 1
            if wrong is not None:
                counts["findings"] += 1
                print(f"{case}: {wrong}", flush=True)
        new = counts - before
        print(
            f"{name:13} {new['inputs']} inputs, {new['findings']} findings, {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    return counts


def main(arguments: list[str]) -> None:
    given = {"--seed": 0, "--every": 1}
    for option in set(arguments) & set(given):
        given[option] = int(arguments.pop(arguments.index(option) + 1))
        arguments.remove(option)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    for kind in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(kind, _stop)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        counts = search(arguments or list(SURFACES), given["--seed"], given["--every"])
        os.chdir("/")
    print(f"{counts['inputs']} inputs, {counts['findings']} findings")
    sys.exit(min(counts["findings"], 1))


if __name__ == "__main__":
    main(sys.argv[1:])
