"""Configuration of the documentation: `sphinx-build docs docs/_build/html`. Nothing is fetched while it builds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
os.environ.setdefault("MPLBACKEND", "Agg")

import truelike

project = "truelike"
author = "the truelike authors"
copyright = author  # noqa: A001 - the name that Sphinx reads
version = release = truelike.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # in docs/_extensions
    "commands",
    "mathml",
    "signatures",
]
exclude_patterns = ["_build", "comparison", "exposure", "paper", "gallery/**/*.md5"]
templates_path = ["_templates"]
root_doc = "index"
default_role = "code"  # `name` in a docstring
toc_object_entries_show_parents = "hide"

# Every cross-reference to a name of truelike must resolve. Names of other libraries are not looked up, because
# that would need their inventories from the network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!truelike\.).*")]

# --- Markdown -------------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# --- API reference --------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings name the types in words
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
numpydoc_show_class_members = False  # the class template lists them
numpydoc_xref_param_type = False

# --- gallery --------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "gallery_order.GalleryOrder",
    "default_thumb_file": str(Path(__file__).parent / "_static" / "thumbnail.png"),
    "min_reported_time": 10_000,
    "plot_gallery": "True",
    "remove_config_comments": True,
}

# --- HTML -----------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "truelike"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["truelike.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "truelike"},
    "show_prev_next": False,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "tutorial": [], "architecture": []}
