"""Looks into a wheel and a source archive: `python tools/check_build.py dist`, after `python -m build`.

A wheel holds the package, its data sets and the mark of typed packages, and nothing else; a source archive also holds
tests, documentation and examples.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
#: what a source archive must have besides the package
BESIDE = (
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "pyproject.toml",
    "Makefile",
    "docs/index.md",
    "examples/plot_sleep.py",
)


def package_files() -> set[str]:
    """Every file of the package that users need, as a wheel names it."""
    kinds = {".py", ".gz", ".typed"}
    return {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "latlin").rglob("*")
        if path.suffix in kinds or path.name == "py.typed"
    }


def problems_of_wheel(path: Path) -> list[str]:
    """What a wheel lacks, and what it should not have."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
    lacking = [f"the wheel lacks {name}" for name in sorted(package_files() - names)]
    spare = [name for name in sorted(names) if not name.startswith("latlin/") and ".dist-info/" not in name]
    return lacking + [f"the wheel has {name}, which is not of the package" for name in spare]


def problems_of_archive(path: Path) -> list[str]:
    """What a source archive lacks."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        *BESIDE,
        *(f"src/{name}" for name in package_files()),
        "tests/test_docs.py",
        "tests/linear/test_tables.py",
    }
    spare = [name for name in sorted(names) if name.startswith(("docs/_build", "docs/auto_examples"))][:1]
    lacking = [f"the source archive lacks {name}" for name in sorted(needed - names)]
    return lacking + [f"the source archive has {name}, which is made" for name in spare]


def main(folder: str) -> int:
    """Print what is wrong; 0 if nothing is."""
    wheels, archives = sorted(Path(folder).glob("*.whl")), sorted(Path(folder).glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        print(f"{folder} must hold one wheel and one source archive, and has {len(wheels)} and {len(archives)}")
        return 1
    found = problems_of_wheel(wheels[0]) + problems_of_archive(archives[0])
    print("\n".join(found) if found else f"{wheels[0].name} and {archives[0].name} are complete")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["dist"]))
