"""Sphinx: ``sphinx-build -W --keep-going docs docs/_build``. Needs the extra ``docs``
and no network.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests" / "studies")]

project = "bayeslaw"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathtext",
    "generated",
]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
# Signatures made from records have defaults that the source does not show.
autodoc_preserve_defaults = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
smartquotes = False  # options keep their two dashes
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "bayeslaw"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
