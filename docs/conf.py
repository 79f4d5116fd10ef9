"""How the documentation is built; `make docs` runs it offline, and the pages it writes ask no network for anything."""

import re

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
# excerpts are fetched by a script, which browsers refuse for pages opened from a folder
html_show_search_summary = False

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


def setup(app):
    # after numpydoc, which has priority 500
    app.connect("autodoc-process-docstring", escape_docstring, priority=900)
    app.connect("autodoc-skip-member", skip_requests)
    app.connect("doctree-read", describe_thumbnails)
