"""Where the processor's time of a call goes, in words: samples of all threads, a thousand a second.

A deterministic profiler does not see what is called through f2py, as an operator or as a ufunc, and makes Python look
dearer than it is. A sample is the expression that a thread is in, found by its position in the source, and counts as
much as the processor time of that thread since the sample before: a long call that keeps Python's lock is seen once, at
its end, with all of its time. What is too small to let go of the lock (arrays of a few hundred numbers) is counted
where Python is next interrupted, so places next to each other share such time.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

#: groups by words of the name that is called; the first that fits
NAMES = {
    "LAPACK": r"[sd]?(potr[fis]|pbtr[fs]|trtr[is]|sye?v[dr]?|gesd?[vd]|gesv|getr[fsi]|geqrf|orm?qr|pttr[fs]|pstrf)",
    "BLAS": r"[sd]?(gemm|gemv|syrk|syr2k|symm|symv|tr[sm]m|tr[sm]v|ger|axpy|nrm2)|v?dot|matmul|c?_?einsum|tensordot"
    r"|inner|outer",
    "copies": r"copy|copyto|as\w*array\w*|array|astype|concatenate|[hv]stack|column_stack|stack|tile|repeat|ravel"
    r"|flatten|toarray|todense",
    "special functions": r"exp|expm1|log|log1p|log2|logaddexp|sqrt|tanh|sinh|cosh|sin|cos|arctan|power|erf\w*|ndtri?"
    r"|expit|log_ndtr|logit|gammaln|digamma|polygamma|psi|loggamma|dawsn|logsumexp|softmax|betaln|kve?|ive?|owens_t|xlogy"
    r"|multigammaln",
}
#: groups by the file of a frame between the sample and the nearest frame of latlin
FILES = {
    "validation": r"sklearn/utils/(validation|_param_validation|_array_api|_tags|_set_output)|sklearn/base",
    "sparse products": r"scipy/sparse/",
    "FFT": r"(scipy|numpy)/fft/",
    "LAPACK": r"(scipy|numpy)/linalg/",
    "special functions": r"scipy/(special|stats)/",
    "scikit-learn": r"/sklearn/",
    "Dask": r"/(dask|distributed|tornado)/",
    "thread limits": r"threadpoolctl",
    "waiting": r"/(threading|selectors|queue|concurrent/futures/\w+)\.py",
}
CHECKS = re.compile(r"_*(check|checks|checked|valid|validate|require|refuse)(_\w+)?$")
ARITHMETIC, PYTHON, COMPILED = "array arithmetic", "Python", "compiled kernels"
GROUPS = tuple(dict.fromkeys(["BLAS", "LAPACK", COMPILED, "special functions", ARITHMETIC, *NAMES, *FILES, PYTHON]))
PERIOD = 1e-3


class Spot(NamedTuple):
    """An instruction, what it calls, and the code above it in the stack, innermost first."""

    code: CodeType
    called: str
    group: str
    above: tuple[CodeType, ...]


class Place(NamedTuple):
    """What is done (a group, and the name of what is called) and the function of latlin that does it."""

    group: str
    called: str
    where: str


class Sampler:
    """Processor seconds by place, of all threads while it lasts."""

    def __enter__(self) -> Sampler:
        self.seconds: Counter[Spot] = Counter()
        self._names: dict[tuple[CodeType, int], str] = {}
        self._over, self._interval = threading.Event(), sys.getswitchinterval()
        sys.setswitchinterval(1e-4)
        self._clocks = {i: clock(i) for i in sys._current_frames()}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _watch(self) -> None:
        mine = threading.get_ident()
        while not self._over.wait(PERIOD):
            for thread, frame in sys._current_frames().items():
                if thread != mine:
                    now = clock(thread)
                    self._note(frame, now - self._clocks.get(thread, now))
                    self._clocks[thread] = now

    def _note(self, frame: FrameType, seconds: float) -> None:
        if seconds > 0.0:
            key = frame.f_code, frame.f_lasti
            if key not in self._names:
                self._names[key] = call_name(source(*key))
            called, group = meant(self._names[key], frame)
            self.seconds[Spot(frame.f_code, called, group, tuple(f.f_code for f in callers(frame)))] += seconds

    def places(self) -> Counter[Place]:
        """Processor seconds by what is done and where."""
        found: Counter[Place] = Counter()
        for spot, seconds in self.seconds.items():
            found[place(spot)] += seconds
        return found

    def stacks(self) -> list[str]:
        """Folded stacks with microseconds, as programs that draw flame graphs read them."""
        folded: Counter[str] = Counter()
        for spot, seconds in self.seconds.items():
            folded[";".join(name_of(code) for code in reversed((spot.code, *spot.above)))] += round(1e6 * seconds)
        return [f"{stack} {count}" for stack, count in sorted(folded.items())]


def clock(thread: int) -> float:
    """Processor seconds of a thread so far; those of the process where the system does not tell threads apart."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except (AttributeError, OSError):
        return time.process_time()


def callers(frame: FrameType) -> Iterator[FrameType]:
    """Frames above, innermost first."""
    above = frame.f_back
    while above is not None:
        yield above
        above = above.f_back


def place(spot: Spot) -> Place:
    """The group, the name of what is called, and the nearest function of latlin (or of the benchmark)."""
    stack = (spot.code, *spot.above)
    depth = next((i for i, code in enumerate(stack) if ours(code)), len(stack))
    where = name_of(stack[depth] if depth < len(stack) else spot.code)
    group, called = spot.group, spot.called
    for code in reversed(stack[:depth]):
        by_file = next((name for name, words in FILES.items() if re.search(words, code.co_filename)), None)
        if by_file:
            group, called = by_file, code.co_name
            break
    if any(CHECKS.match(code.co_name) for code in stack if ours(code)):
        group = "validation"
    return Place(group, called, where)


def ours(code: CodeType) -> bool:
    return "/latlin/" in code.co_filename or Path(code.co_filename).parent == Path(__file__).parent


def name_of(code: CodeType) -> str:
    """Module and function: inference.gaussian_kl.GaussianKL.infer."""
    path = Path(code.co_filename)
    parts = path.with_suffix("").parts
    inside = parts[parts.index("latlin") + 1 :] if "/latlin/" in code.co_filename else parts[-1:]
    return ".".join([*inside, code.co_qualname.replace(".<locals>", "").replace("<lambda>", "lambda")])


def source(code: CodeType, instruction: int) -> str:
    """The expression that an instruction belongs to."""
    positions = list(code.co_positions())[instruction // 2]
    if None in positions:
        return ""
    line, last, start, end = (int(p or 0) for p in positions)
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : last]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def call_name(expression: str) -> str:
    """The dotted name that an expression calls, "@" for a product of matrices, nothing for anything else."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(tree, ast.BinOp):
        return "@" if isinstance(tree.op, ast.MatMult) else "arithmetic"
    if isinstance(tree, (ast.Compare, ast.UnaryOp)):
        return "arithmetic"
    if isinstance(tree, ast.Subscript):
        return "indexing"
    if not isinstance(tree, ast.Call):
        return ""
    parts = []
    node = tree.func.body if isinstance(tree.func, ast.IfExp) else tree.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else ""]))


def meant(called: str, frame: FrameType) -> tuple[str, str]:
    """The last part of the name, or that of the compiled function it stands for, and the group in words."""
    first, *rest = called.split(".")
    found = frame.f_globals.get(first) if first in frame.f_globals else frame.f_locals.get(first) if first else None
    for name in rest:
        found = getattr(found, "__dict__", {}).get(name)
    last = called.rpartition(".")[2]
    if is_kernel(found):
        return found.__name__, COMPILED
    if called == "@":
        return called, "BLAS"
    if called in ("arithmetic", "indexing"):
        return called, ARITHMETIC
    for group, words in NAMES.items():
        if re.fullmatch(words, last.lstrip("_")):
            return last, group
    whose = str(getattr(found, "__module__", "") or type(found).__module__)
    array = called.startswith("np.") or whose.startswith("numpy") or re.fullmatch(METHODS, last)
    return last, ARITHMETIC if array else PYTHON


#: methods of arrays, and the parts of NumPy that they call
METHODS = r"sum|mean|max|min|any|all|cumsum|prod|argmax|argmin|std|var|sort|argsort|reshape|umr_\w+|reduce|ufunc"


def is_kernel(found: Any) -> bool:
    return type(found).__name__ in ("CPUDispatcher", "Dispatcher", "DUFunc", "GUFunc")
