"""The site: excerpts of search results, and its pages in a real browser where one is installed and `make docs` ran."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from browser import Browser, find_browser

REPOSITORY = Path(__file__).parents[1]
BUILT = REPOSITORY / "docs" / "_build" / "html"
CHROMIUM = find_browser()
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None or not (BUILT / "search.html").exists(), reason="no Chromium here, or `make docs` was not run"
)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js here")
def test_excerpts_surround_the_first_word_that_occurs():
    script = json.dumps(str(REPOSITORY / "docs" / "_static" / "excerpts.js"))
    text = "a" * 300 + " the Evidence of a model " + "b" * 300
    asked = f"""
    const {{ excerptOf, pageOf }} = require({script});
    console.log(JSON.stringify([
      excerptOf({json.dumps(text)}, ["evidence", "absent"]), excerptOf("short evidence", ["evidence"]),
      excerptOf("nothing here", ["evidence"]), pageOf("guide/linear.html?highlight=x#classify"),
    ]));"""
    run = subprocess.run(["node", "-e", asked], capture_output=True, text=True, timeout=60, check=True)
    long, short, none, name = json.loads(run.stdout)
    assert long.startswith("… a")
    assert "the Evidence of a model" in long
    assert long.endswith("b …")
    assert len(long) < 240
    assert (short, none, name) == ("short evidence", "", "guide/linear")


@in_a_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index", "tour", "guide/additive", "benchmarks", "api", "auto_examples/index"])
def test_a_page_is_quiet_needs_no_network_and_fits(tmp_path, name, width):
    with Browser(CHROMIUM, tmp_path) as browser:
        browser.open(BUILT / f"{name}.html", width)
        assert browser.complaints() == []
        assert all(url.startswith(("file:", "data:")) for url in browser.requests())
        assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert browser.evaluate("[...document.images].every(image => image.alt)")


@in_a_browser
def test_the_search_shows_excerpts_from_a_folder(tmp_path):
    with Browser(CHROMIUM, tmp_path) as browser:
        browser.open(BUILT / "search.html", 1280, query="?q=evidence")
        seen = "document.querySelectorAll('#search-results li p.context').length"
        for _ in range(100):
            if browser.evaluate(seen) > 3:
                break
            browser.evaluate("new Promise(done => setTimeout(done, 50))", wait=True)
        assert browser.evaluate(seen) > 3
        words = browser.evaluate("document.querySelector('#search-results li p.context').textContent")
        assert "evidence" in words.lower()
