"""The tour writes everything it names, and says what the numbers are."""

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pandas = pytest.importorskip("pandas")


def test_the_tour(tmp_path):
    from typer.testing import CliRunner

    from latlin.cli.app import app

    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for word in ("lower bound", "approximation", "map", "lvb", "ep", "gkl", "Approximation", "accurate"):
        assert word in result.output
    assert str(tmp_path / "out" / "report.html") in result.output
    table = pandas.read_csv(tmp_path / "out" / "engines.csv").set_index("engine")
    assert list(table.index) == ["map", "laplace", "lvb", "ep", "gkl"]
    assert table.loc["lvb", "log evidence"] < table.loc["gkl", "log evidence"] < 0.0
    assert np.isnan(table.loc["map", "log evidence"])
    # averaging over the posterior predicts better than the mode
    assert table.loc["gkl", "held-out log p"] > table.loc["map", "held-out log p"] + 0.005
    assert (table["rows learnt from"] + table["rows held out"] == 569).all()
    assert table["held-out log p"].between(np.log(0.5), 0.0).all()
    assert (tmp_path / "out" / "coefficients.png").stat().st_size > 10_000
    scores = {
        line.rsplit(None, 1)[0]: float(line.rsplit(None, 1)[1])
        for line in result.output.splitlines()
        if "count" in line and line.startswith(("mode,", "posterior,"))
    }
    # the posterior wins visibly where groups are small
    assert scores["posterior, all counties together"] > scores["mode, every county alone"] + 0.2
    page = (tmp_path / "out" / "report.html").read_text("utf8")
    for words in ("Engines beside each other", "Technical part: approximation", "worst texture"):
        assert words in page
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "breast-cancer.csv",
        "coefficients.png",
        "counties.png",
        "engines.csv",
        "model.latlin",
        "report.html",
    }
