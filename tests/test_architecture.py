"""The house rules that a machine can check: imports go down only, files and functions stay short."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
ROOT = REPOSITORY / "src" / "latlin"
FLOORS = {
    "version": -1,
    "numerics": 0,
    "densities": 1,
    "diagnostics": 1,
    "distributed": 1,
    "potentials": 1,
    "priors": 1,
    "inference": 2,
    "engines": 2,
    "covariances": 2,
    "hyper": 2.5,
    "additive": 3.5,
    "linear": 3.5,
    "gp": 3,
    "factor": 3,
    "mixture": 3,
    "design": 3,
    "quadrature": 3,
    "swag": 4,
    "plot": 4,
    "report": 4,
    "datasets": 3.25,
    "cli": 5,
}
OPTIONAL = {
    "torch",
    "dask",
    "distributed",
    "matplotlib",
    "arviz",
    "pandas",
    "formulaic",
    "tqdm",
    "rich",
    "typer",
    "pyvbmc",
    "PIL",
    "pyarrow",
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
#: what stands outside the wheel and uses the library as others do
OUTSIDE = [*sorted((REPOSITORY / "reproduction").rglob("*.py")), REPOSITORY / "tools" / "golden.py"]
#: packages whose `__all__` others may import from
DOORS = {
    "latlin",
    *(
        f"latlin.{name}"
        for name in ("datasets", "design", "diagnostics", "distributed", "engines", "factor", "gp", "linear", "mixture")
    ),
    *(
        f"latlin.{name}"
        for name in (
            "additive",
            "covariances",
            "plot",
            "potentials",
            "priors",
            "quadrature",
            "report",
            "swag",
            "densities.bases",
        )
    ),
    "latlin.mixture.schedules",
}


def room(path):
    """The room of a file: its package below latlin, or the module itself."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree):
    """(module, whether at import time) of every import."""
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in late
        elif isinstance(node, ast.ImportFrom):
            if node.module == "latlin":
                for alias in node.names:
                    yield f"latlin.{alias.name}", id(node) not in late
            else:
                yield node.module or "", id(node) not in late


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_keeps_the_rules(path):
    tree = ast.parse(path.read_text(encoding="utf8"))
    here = room(path)
    assert here in FLOORS, f"{here} has no floor; add it to the plan"
    for module, at_import in imports(tree):
        parts = module.split(".")
        if parts[0] == "latlin" and len(parts) > 1 and parts[1] in FLOORS and parts[1] != here:
            below = FLOORS[parts[1]] < FLOORS[here] or (here in {"engines", "covariances"} and parts[1] == "inference")
            assert below, f"{path.name} on floor {FLOORS[here]} imports {module}"
        if parts[0] == "sklearn":
            assert FLOORS[here] >= 3, f"{path.name} on floor {FLOORS[here]} imports scikit-learn"
        if parts[0] in OPTIONAL and here not in {"cli", "swag"}:
            assert not at_import, f"{path.name} imports optional {module} at import time"
    assert ast.get_docstring(tree), f"{path.name} has no docstring"


def name_of(path):
    """The module of a file."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_file_is_needed_by_one_that_it_needs():
    """Not even late, within a function, or for its types alone."""
    names = {name_of(path): path for path in FILES}
    needs = {name: set() for name in names}
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Import):
                needs[name] |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                needs[name] |= inner & names.keys()
                needs[name] |= {node.module} & names.keys() if inner - names.keys() else set()
    TopologicalSorter({name: other - {name} for name, other in needs.items()}).prepare()  # CycleError names the circle


def test_a_class_name_has_one_meaning_within_a_room():
    found: dict[tuple[str, str], Path] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.ClassDef):
                other = found.setdefault((room(path), node.name), path)
                assert other == path, f"{node.name} stands in {other} and in {path}"


def test_no_command_imports_another():
    commands = {"compare", "demo", "explore", "formula", "predict"}
    for name in commands:
        tree = ast.parse((ROOT / "cli" / f"{name}.py").read_text(encoding="utf8"))
        others = {f"latlin.cli.{other}" for other in commands - {name}}
        assert not others & {module for module, _ in imports(tree)}, f"{name} imports another command"


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_stands_outside_imports_public_names_only(path):
    tree = ast.parse(path.read_text(encoding="utf8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("latlin."), f"{path.name} imports the module {alias.name}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "latlin":
            assert node.module in DOORS, f"{path.name} imports from {node.module}, which is not public"
            hidden = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not hidden, f"{path.name} imports {hidden} from {node.module}"
    assert ast.get_docstring(tree), f"{path.name} has no docstring"


@pytest.mark.parametrize(
    "path",
    [*FILES, *(path for path in OUTSIDE if path.parent.name == "reproduction")],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_files_and_functions_stay_short(path):
    text = path.read_text(encoding="utf8")
    assert len(text.splitlines()) <= 450
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node)
            length = node.end_lineno - node.lineno - (len(docstring.splitlines()) + 1 if docstring else 0)
            assert length <= 60, f"{path.name}:{node.name} has {length} lines"


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("test_*.py")), ids=lambda path: path.name)
def test_every_test_file_tests_something(path):
    tree = ast.parse(path.read_text(encoding="utf8"))
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
    assert tests or "parametrize_with_checks" in path.read_text(encoding="utf8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_designs_of_points_take_their_generator_as_the_lowest_scipy_does(path):
    """SciPy 1.13 knows `seed`; `rng` came later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"Sobol", "Halton", "LatinHypercube"}:
            assert "rng" not in {keyword.arg for keyword in node.keywords}, f"{path.name}:{node.lineno}"
