"""Pages of Markdown as tests need them: blocks of code, headings, links."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SITE = ROOT / "docs"
GENERATED = ("_build", "auto_examples", "api")
FENCE = re.compile(r"^(`{3,}|:{3,})([^\n`]*)\n(.*?)^\1\s*$", re.M | re.S)


class Page(NamedTuple):
    """A page: where it is and its text."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self, language):
        """Code of one language, in order; a second word, such as no-run, takes a block out."""
        return [code for _, info, code in FENCE.findall(self.text) if info.strip() == language]

    def unused_blocks(self, language):
        """Blocks of a language that say they are not for running."""
        return [code for _, info, code in FENCE.findall(self.text) if info.split()[:1] == [language] != info.split()]

    @property
    def prose(self) -> str:
        """The text without code."""
        return re.sub(r"`[^`\n]*`", "", FENCE.sub("", self.text))

    def anchors(self):
        """Names that links can end in, made of the headings as GitHub does."""
        headings = re.findall(r"^#{1,6} +(.*?)\s*$", FENCE.sub("", self.text), re.M)
        return {slug(heading) for heading in headings} | set(re.findall(r"^\(([\w-]+)\)=$", self.text, re.M))

    def links(self):
        """(file, anchor) of every relative link; file is "" for this page."""
        for target in re.findall(r"\]\(([^)\s]+)\)", self.prose):
            if not re.match(r"[a-z]+:", target):
                file, _, anchor = target.partition("#")
                yield file, anchor

    def toctree(self):
        """Names in the tables of contents, patterns included, as they stand."""
        for _, info, body in FENCE.findall(self.text):
            if info.strip() == "{toctree}":
                yield from (line for line in body.splitlines() if line.strip() and not line.startswith(":"))


def slug(heading):
    """The anchor of a heading: lower case, words joined by hyphens, other signs dropped."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", plain.strip().lower()))


def read(path):
    return Page(path, path.read_text(encoding="utf8"))


def pages():
    """README, CONTRIBUTING, CHANGELOG and everything of the site that is written by hand."""
    site = (p for p in sorted(SITE.rglob("*.md")) if p.relative_to(SITE).parts[0] not in GENERATED)
    return [read(path) for path in (*(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "CHANGELOG")), *site)]
