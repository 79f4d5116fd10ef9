"""What other people's scripts rely on: names, import cost, code blocks of the documentation."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import latlin

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {
    str(path.relative_to(ROOT)): blocks
    for path in DOCUMENTS
    if (blocks := re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf8"), re.S))
}


def test_public_names_exist():
    for name in latlin.__all__:
        assert getattr(latlin, name) is not None
    assert set(latlin.__all__) <= set(dir(latlin))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        latlin.nothing  # noqa: B018


def test_import_brings_in_nothing_heavy():
    code = "import latlin, sys, json; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    for heavy in ("torch", "dask", "matplotlib", "pandas", "sklearn", "numba"):
        assert heavy not in modules


def test_inference_brings_in_no_optional_package():
    code = (
        "import json, sys; from latlin import *; from latlin import potentials;"
        "infer(LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[1.0]], potentials.Logit([1]))]), 'gkl');"
        "print(json.dumps(sorted(sys.modules)))"
    )
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    for heavy in ("torch", "dask", "matplotlib", "pandas", "sklearn"):
        assert heavy not in modules


@pytest.mark.parametrize("page", PAGES)
def test_code_in_the_documents_runs(page, tmp_path, monkeypatch, capsys):
    """The blocks of a page, one after the other, as a reader types them."""
    if any("torch" in block for block in PAGES[page]):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(PAGES[page]):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert len(names) > 1
