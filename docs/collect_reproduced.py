"""Take pages of full runs into the site: `python docs/collect_reproduced.py FOLDER [ENTRY …]`.

Pages, tables and figures are copied to `docs/reproduced`, figures with 64 colours; the index counts what agrees on all
pages there. Some kept pages hold the results of runs that tested why a number differs and that no entry repeats: name
the entries whose pages are to be replaced.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

TARGET = Path(__file__).parent / "reproduced"
INTRO = """# The pages of a full run

Made by `python -m reproduction` without `--quick`; [how to read them, and what came out](../guide/reproduce.md).
Where a run had less than the document's, its page names the difference. The runs that tested why a number differs were
made once, with version 0.1; their results are kept on these pages, and no entry repeats them.
"""
LINK = re.compile(r"\]\(([^)\s]+\.(?:csv|png|gif))\)")
COUNTS = re.compile(r"(\d+) of (\d+) agree, (\d+) differ(?: \((\d+) not explained\))?")
#: figures of photographs whose licence is not stated
WITHHELD = re.compile(r"!\[[^]]*\]\(figure_5_3_\d+\.png\)")
INSTEAD = "(The figure shows photographs and is not kept here; running the entry draws it.)"


def collect(source: Path, names: Sequence[str] = ()) -> None:
    """Copy every page, or those that are named, with what it shows; then write the index."""
    TARGET.mkdir(exist_ok=True)
    stems = {re.sub(r"[-.]", "_", name) for name in names}
    for page in sorted(source.glob("*.md")):
        if stems and page.stem not in stems:
            continue
        text = WITHHELD.sub(INSTEAD, page.read_text(encoding="utf8"))
        (TARGET / page.name).write_text(text, encoding="utf8")
        for name in LINK.findall(text):
            copy(source / name, TARGET / name)
    write_index()


def write_index() -> None:
    """One line per kept page."""
    pages = sorted(page for page in TARGET.glob("*.md") if page.name != "index.md")
    rows = [row(page.name, page.read_text(encoding="utf8")) for page in pages]
    head = ["| entry | agree | differ, with a reason | not explained | not compared |", "|---|---|---|---|---|"]
    contents = ["```{toctree}", ":hidden:", ":glob:", "", "*", "```"]
    (TARGET / "index.md").write_text("\n".join([INTRO, *head, *rows, "", *contents, ""]), encoding="utf8")


def copy(source: Path, target: Path) -> None:
    """Figures with a palette, which a third of the bytes hold; everything else as it is."""
    if source.suffix != ".png":
        shutil.copy(source, target)
        return
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)


def row(name: str, text: str) -> str:
    """A line of the index: the title, and the counts of the page."""
    title = text.partition("\n")[0].removeprefix("# ")
    found = COUNTS.search(text)
    if found is None:
        raise ValueError(f"{name} has no line that counts what agrees")
    agree, every, differ, unexplained = (int(count or 0) for count in found.groups())
    return f"| [{title}]({name}) | {agree} | {differ - unexplained} | {unexplained} | {every - agree - differ} |"


if __name__ == "__main__":
    collect(Path(sys.argv[1]), sys.argv[2:])
