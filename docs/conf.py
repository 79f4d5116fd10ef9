"""How the documentation is built; `make docs` runs it offline, and the pages it writes ask no network for anything."""

import latlin

project = "latlin"
author = "the latlin developers"
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
html_title = f"latlin {release}"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_copy_source = False
html_show_sourcelink = False

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
