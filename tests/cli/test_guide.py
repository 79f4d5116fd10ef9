"""The commands of the guide run, one after the other, as a reader types them."""

import re
import shlex
from pathlib import Path

import pytest

from latlin.datasets import load_dataset, write_table

pytest.importorskip("typer")
pytest.importorskip("pandas")

PAGE = Path(__file__).parent.parent.parent / "docs" / "guide" / "command_line.md"
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf8"), re.S) for line in block.splitlines()
]


def test_the_commands_of_the_guide_run(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from latlin.cli.app import app

    monkeypatch.chdir(tmp_path)
    Path("latlin-demo").mkdir()
    # what the tour leaves behind, but smaller
    table = load_dataset("breast-cancer").to_pandas().astype({"benign": int})
    write_table("latlin-demo/breast-cancer.csv", table.iloc[:150, -6:])
    first, *others = COMMANDS
    assert first == "latlin demo"
    assert len(others) == 5
    for command in others:
        name, *words = shlex.split(command)
        assert name == "latlin"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}: {result.output}"
    assert {"model.latlin", "report.html", "predictions.csv", "latlin-demo"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_every_command_is_in_the_guide():
    from latlin.cli.app import app

    text = PAGE.read_text("utf8")
    for command in app.registered_commands:
        assert f"latlin {command.callback.__name__}" in text


@pytest.mark.parametrize(
    "command", ["", "fit", "predict", "compare", "report", "summary", "cluster", "factors", "smooth", "demo"]
)
def test_help_shows_flags_as_flags_and_names_columns(command):
    from typer.testing import CliRunner

    from latlin.cli.app import app

    said = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
    lines = [line for line in said.splitlines() if "--" in line]
    assert not [line for line in lines if "<bool>" in line or "list[str]" in line or "TEXT  " in line]
    if "--target" in said:
        assert "COLUMN" in said
