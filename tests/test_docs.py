"""What the documentation says: its code runs, its links lead somewhere, its pages can be found."""

import fnmatch
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from doc_pages import ROOT, SITE, pages, slug

PAGES = {page.name: page for page in pages()}
#: more blocks than these must not be left out of the tests
NOT_RUN: set[str] = set()
#: pages of the site that are generated or in another markup
NOT_MARKDOWN = {"api", "auto_examples/index"}


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.blocks("python")])
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    """The blocks of a page, one after the other in one namespace, as a reader types them."""
    blocks = PAGES[name].blocks("python")
    for package in ("torch", "matplotlib", "pandas", "dask"):
        if any(package in block for block in blocks) or (package == "matplotlib" and _plots(blocks)):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{name}, block {number}", "exec"), names)
    assert len(names) > 1


def _plots(blocks):
    return any(re.search(r"\bplot\b|\.plot_", block) for block in blocks)


def test_no_block_is_left_out_without_a_reason():
    assert {name for name, page in PAGES.items() if page.unused_blocks("python")} == NOT_RUN


def test_the_commands_of_the_tour_run(tmp_path, monkeypatch):
    """From a CSV to a report with nothing but what the page says."""
    for package in ("typer", "pandas", "matplotlib"):
        pytest.importorskip(package)
    from typer.testing import CliRunner

    from latlin.cli.app import app

    tour = PAGES["docs/tour.md"]
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in tour.blocks("python")[:2]:  # the two that write tables
        exec(compile(block, "docs/tour.md", "exec"), names)
    commands = [line for block in tour.blocks("sh") for line in block.splitlines()]
    printed = {}
    for command in commands:
        name, *words = shlex.split(command)
        assert name == "latlin"
        result = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
        assert result.exit_code == 0, f"{command}: {result.output}"
        printed[words[0], Path(words[1]).stem] = result.output
    done = {("fit", "diabetes"), ("compare", "diabetes"), ("report", "diabetes"), ("predict", "diabetes")}
    assert done | {("fit", "radon"), ("compare", "radon")} <= set(printed)
    assert {"diabetes.latlin", "radon.latlin", "report.html", "predictions.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    # what the page shows is what is printed
    for claim in ("-2418.4740 (approximation)", "-5.4201 ± 0.0305", "R² 0.4979"):
        assert claim in tour.text
        assert claim in " ".join(printed["fit", "diabetes"].split())
    for claim in ("-2418.474", "-2433.506", "-2433.530"):
        assert claim in tour.text
        assert claim in printed["compare", "diabetes"]
    fitted, shown = (" ".join(words.split()) for words in (printed["fit", "radon"], tour.text))
    for claim in (
        "Given the other terms, log_radon falls with floor (by 0.64 per unit, 90 %: 0.53 to 0.75) and rises with "
        "log_uranium (by 0.79 per unit, 90 %: 0.62 to 0.95).",
        "The 85 levels of county differ (standard deviation 0.15, 90 % interval 0.073 to 0.23).",
        "predicted better than by their common mean (+0.10 per row), with coefficients and groups together.",
        "sd(county) 0.1494 0.04731 0.07301 0.1482 0.2292 HalfStudentT(df=3, scale=2.047)",
        "Model: does not fit. Residuals have heavy tails (excess kurtosis 1.5, 0 for Gaussian noise).",
        "floor -0.6383 0.06664 -0.748 -0.5288 0",
    ):
        assert claim in shown
        assert claim in fitted
    place = "-9.86 5.23 not told apart (1.89 standard errors)"
    assert place in shown
    assert place in " ".join(printed["compare", "radon"].split())
    rows = [line for line in tour.text.splitlines() if re.match(r"(note: 1 of 3 rows|county,floor|26,|999,)", line)]
    assert len(rows) == 5
    assert all(line.partition(".")[0] in printed["predict", "radon"] for line in rows)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    page = PAGES[name]
    for file, anchor in page.links():
        target = (page.path.parent / file).resolve() if file else page.path
        assert target.exists(), f"{name} links to {file}"
        if SITE in page.path.parents and target.suffix == ".md":
            assert SITE in target.parents, f"{name} links out of the site to {file}"
        if anchor:
            known = PAGES[target.relative_to(ROOT).as_posix()].anchors()
            assert anchor in known, f"{name} links to #{anchor} of {file or 'itself'}, which has {sorted(known)}"


def test_every_page_is_reached_from_the_index():
    site = {
        page.path.relative_to(SITE).with_suffix("").as_posix() for page in PAGES.values() if SITE in page.path.parents
    }
    reached, waiting = set(), ["index"]
    while waiting:
        here = waiting.pop()
        if here in reached or here not in site:
            continue
        reached.add(here)
        folder = here.rpartition("/")[0]
        for pattern in PAGES[f"docs/{here}.md"].toctree():
            pattern = f"{folder}/{pattern}" if folder else pattern
            found = [page for page in fnmatch.filter(site, pattern) if page != here]
            assert found or pattern in NOT_MARKDOWN, f"{here} lists {pattern}, which is no page"
            assert not {*found} & {*waiting, *reached}, f"{here} lists a page twice: {pattern}"
            waiting.extend(found)
    assert site == reached


def test_the_changelog_page_shows_the_changelog():
    assert "CHANGELOG.md" in PAGES["docs/changelog.md"].text


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/")])
def test_pages_need_no_network_and_images_have_alt_text(name):
    text = PAGES[name].text
    assert not re.search(r"!\[\]|<script|<iframe|src=\"http", text)
    assert not re.search(r"\$\$|\\\(|```\{math\}|\{math\}`", text), "formulas are Unicode text: the site has no MathJax"


def test_slugs_are_those_of_the_site():
    assert slug("What *is* `a` bound?") == "what-is-a-bound"
    assert slug("Regress, with outliers") == "regress-with-outliers"


def test_every_name_of_the_reference_exists():
    pages = sorted((SITE / "reference").glob("*.rst"))
    listed = re.findall(r"^   reference/(\w+)$", (SITE / "api.rst").read_text(encoding="utf8"), re.M)
    assert sorted(listed) == [page.stem for page in pages]
    assert len(pages) <= 12
    names = [name for page in pages for name in re.findall(r"^   (latlin\.\S+)$", page.read_text("utf8"), re.M)]
    assert len(names) > 150
    for name in names:
        module, _, attribute = name.rpartition(".")
        if module == "latlin.swag" and importlib.util.find_spec("torch") is None:
            continue
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_floor_plan_names_every_room():
    text = PAGES["docs/developer/architecture.md"].text
    plan = set(re.findall(r"\w+", text.partition("```text")[2].partition("```")[0]))
    rooms = {path.stem for path in (ROOT / "src" / "latlin").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {room for room in rooms if not room.startswith("_")} <= plan


@pytest.mark.parametrize("name", ["docs/developer/architecture.md", "docs/developer/extending.md"])
def test_files_that_a_developer_page_names_exist(name):
    folders = ("src", "tests", "benchmarks", "tools", "reproduction")
    files = ["/" + path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for shown in re.findall(r"`([\w/{},]+\.py)`", PAGES[name].text):
        before, _, rest = shown.partition("{")
        middle, _, after = rest.partition("}")
        for path in [before + part + after for part in middle.split(",")]:
            assert any(file.endswith(f"/{path}") for file in files), path


def test_the_benchmark_page_names_every_benchmark():
    text = PAGES["docs/benchmarks.md"].text
    files = [path.name for path in (ROOT / "benchmarks").glob("[a-z]*.py")]
    assert [name for name in files if f"`{name}`" not in text] == []
