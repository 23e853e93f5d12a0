"""Sphinx configuration of the documentation; `make docs` builds it."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from reference_pages import write_pages  # noqa: E402 - found on the path set above

from orchestrator import __version__  # noqa: E402

write_pages(HERE / "generated")

smartquotes = False  # options such as --driver stay as they are typed
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
suppress_warnings = ["myst.header"]  # sections of included pages begin at level 2
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+((?:[\w-]+/)*[A-Z]+\.md)[^)]*\)")
"""Matches a link to a Markdown file outside of docs/, such as README.md; the site does not have its page."""

# Names in docstrings stand in single backquotes.
default_role = "code"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True


def setup(app):
    """Show links to Markdown files outside of docs/ as names of files of the repository."""

    def name_files(_app, _page, source):
        source[0] = OUTSIDE.sub(
            lambda link: link[1] if link[1] == link[2] else rf"{link[1]} (`{link[2]}`)", source[0]
        )

    app.connect("source-read", name_files)
