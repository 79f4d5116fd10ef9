"""The report in a real browser: nothing in the console, nothing from the network, nothing off the edge."""

import numpy as np
import pytest

from browser import Browser, find_browser
from latlin.additive import AdditiveModel
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression
from latlin.report import write_report

CHROMIUM = find_browser()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here (looked for chromium, google-chrome, chrome)"
)
EVIL = "<script>document.title = 'taken'; console.error('run')</script>"
OFF_EDGE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    folder, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    long = "a_column_with_a_very_long_name_and_no_place_to_break_it_" * 3
    X = pandas.DataFrame(rng.standard_normal((80, 3)), columns=["age", EVIL, long])
    y = X.to_numpy() @ [1.0, -1.0, 0.0] + rng.standard_normal(80)
    column = {"name": EVIL, "kind": "numbers", "missing": 0, "distinct": 80, "summary": long}
    told = {"columns": [column], "notes": [EVIL, long], "target": EVIL, "diagnosis": [("verdict", long)]}
    labels = np.where(y > 0, EVIL, "no")
    numeric = BayesianLinearRegression().fit(X, y)
    write_report(folder / "numeric.html", numeric, X, y, folds=3, engines=[{"engine": long, "kind": EVIL}], **told)
    classes = BayesianLogisticRegression(prior_scale=1.0, engine="laplace").fit(X, labels)
    write_report(folder / "labels.html", classes, X, labels, folds=3, **told)
    table = {"y": y, "x": X["age"], "level": np.resize(["first", "second"], 80)}
    groups = AdditiveModel("y ~ x + level", hyperparameters="maximise").fit(table)
    write_report(folder / "additive.html", groups, table)
    return folder


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["numeric", "labels"])
def test_a_page_is_quiet_and_fits(browser, pages, name, width):
    browser.events.clear()
    browser.open(pages / f"{name}.html", width)
    assert browser.evaluate("innerWidth") == width
    assert browser.complaints() == []
    assert browser.requests() == [(pages / f"{name}.html").as_uri()]
    assert browser.evaluate(OFF_EDGE) is False
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
    assert EVIL in browser.evaluate("document.body.innerText")
    assert browser.evaluate("document.title").startswith("Bayesian")
    assert browser.evaluate("document.querySelectorAll('svg.strip').length") == 3


BROKEN = """[...document.querySelectorAll('.checks th, .checks td')].flatMap(cell => {
  const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
  while (words.nextNode()) for (const found of words.currentNode.data.matchAll(/[a-z]{3,20}/g)) {
    const range = document.createRange();
    range.setStart(words.currentNode, found.index);
    range.setEnd(words.currentNode, found.index + found[0].length);
    if (range.getClientRects().length > 1) broken.push(found[0]);
  }
  return broken; })"""


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_tables_do_not_break_inside_words_and_columns_are_folded(browser, pages, width):
    for name in ("additive", "labels"):
        browser.open(pages / f"{name}.html", width)
        assert browser.evaluate("document.querySelectorAll('.checks td').length") > 4
        assert browser.evaluate(BROKEN) == []
        assert browser.evaluate(OFF_EDGE) is False
    assert browser.evaluate("document.querySelector('details').open") is False
    assert browser.evaluate("document.querySelectorAll('.axis span').length") >= 2


def test_the_test_would_notice(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><meta name='viewport' content='width=device-width'><body style='width:2000px'>"
        "<img src='http://127.0.0.1:9/x.png'><script>console.error('bad')</script>"
    )
    browser.events.clear()
    browser.open(page, 390)
    assert browser.complaints()
    assert len(browser.requests()) > 1
    assert browser.evaluate(OFF_EDGE) is True


def test_paper_and_darkness_have_their_own_look(browser, pages):
    browser.open(pages / "numeric.html", 1280)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.ask("Emulation.setEmulatedMedia", features=dark)
    assert browser.evaluate(background) == "rgb(20, 23, 27)"
    browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    assert browser.evaluate(background) == "rgb(255, 255, 255)"
    browser.ask("Emulation.setEmulatedMedia", media="", features=[])
