"""How the documentation is built; `make docs` runs it offline, and the pages it writes ask no network for anything."""

import json
import re
from pathlib import Path

from docutils import nodes

import latlin

project = "latlin"
author = copyright = "the latlin developers"
release = version = latlin.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "auto_examples/**/*.py", "auto_examples/**/*.zip"]

# formulas are Unicode text, so no page needs a script for mathematics
html_theme = "furo"
templates_path = ["_templates"]
html_title = f"latlin {release}"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_copy_source = False
html_show_sourcelink = False
# Sphinx fetches excerpts, which browsers refuse for pages opened from a folder: here they come from texts.js
html_show_search_summary = False
#: letters of a page that excerpts can be taken from
MOST_LETTERS = 30_000

default_role = "literal"  # single backquotes in docstrings are code
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["torch"]
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["auto_examples"],
    # training networks takes minutes; that example is shown with the numbers of a run and not executed
    "filename_pattern": r"plot_(?!multiswag)",
    "ignore_pattern": r"__init__",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "within_subsection_order": "ExampleTitleSortKey",
    "copyfile_regex": r".*\.rst",
}

#: what mathematics and attribute names look like to reStructuredText, and how to say that they are text
PLAIN_TEXT = (
    (re.compile(r"\|"), r"\\|"),
    (re.compile(r"(?<![*\w\\])(\w*[^\W_])_(?![\w*])"), r"\1\\_"),
    (re.compile(r"(?<=[\s(])\*(?=(args|kwargs)\b)"), r"\\*"),
)
#: references of inherited docstrings to pages of other projects
FOREIGN_LABEL = re.compile(r":ref:`([^`<]*?)\s*<[^`>]*>`")


def escape(line):
    """Escape what is not between backquotes; a plural after them gets its space."""
    parts = re.split(r"(`+[^`]+`+)", line)
    for place in range(0, len(parts), 2):
        for pattern, text in PLAIN_TEXT:
            parts[place] = pattern.sub(text, parts[place])
        if place and re.match(r"\w", parts[place]):
            parts[place] = "\\ " + parts[place]
    return "".join(parts)


def escape_docstring(app, what, name, obj, options, lines):
    """Escape the prose of a docstring, and leave directives, fields and sessions as they are."""
    session = False
    for place, line in enumerate(lines):
        line = FOREIGN_LABEL.sub(r"\1", line)
        session = line.lstrip().startswith(">>>") or (session and bool(line.strip()))
        if not session and not line.lstrip().startswith((".. ", ":")):
            lines[place] = escape(line)


def skip_requests(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn adds for routing metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def describe_thumbnails(app, doctree):
    """Give the pictures of the gallery's first page the text that they lack."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt"):
            image["alt"] = re.sub(r"sphx_glr_plot_|_thumb|\.\w+$", "", image["uri"].rpartition("/")[2]).replace(
                "_", " "
            )


def keep_text(app, pagename, templatename, context, doctree):
    """Remember the text of a page; the page of the search gets the script that shows excerpts."""
    if doctree is not None:
        app.env.latlin_texts = getattr(app.env, "latlin_texts", {})
        app.env.latlin_texts[pagename] = " ".join(doctree.astext().split())[:MOST_LETTERS]
    if pagename == "search":
        for name in ("texts.js", "excerpts.js"):
            app.add_js_file(name)


def write_texts(app, exception):
    """The texts of all pages as a script, which a page in a folder may load."""
    if exception is None and app.builder.format == "html":
        texts = json.dumps(getattr(app.env, "latlin_texts", {}), ensure_ascii=False)
        (Path(app.outdir) / "_static" / "texts.js").write_text(f"window.pageTexts = {texts};\n", encoding="utf8")


def setup(app):
    app.connect("html-page-context", keep_text)
    app.connect("build-finished", write_texts)
    # after numpydoc, which has priority 500
    app.connect("autodoc-process-docstring", escape_docstring, priority=900)
    app.connect("autodoc-skip-member", skip_requests)
    app.connect("doctree-read", describe_thumbnails)
