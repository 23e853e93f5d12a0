"""Sphinx configuration of the documentation; `make docs` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from reference_pages import write_pages  # noqa: E402 - found on the path set above

from orchestrator import __version__  # noqa: E402

write_pages(HERE / "generated")

project = "haltsweep"
author = "the haltsweep authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["generated/*"]
html_theme = "furo"
html_title = f"haltsweep {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_copyright = False

# Headings of level 1 to 3 are targets of links, as in a repository that shows Markdown.
myst_heading_anchors = 3
# Files outside of docs/, such as the studies and the source, are linked for readers of the repository.
suppress_warnings = ["myst.header"]

# Names in docstrings stand in single backquotes.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
