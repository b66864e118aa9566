"""Sphinx's settings for the documents as a site: `make docs` builds it into build/docs.

Sphinx reads the reference of the library from docstrings. With MyST the pages stay Markdown, which the repository shows
too. `generated.py` writes the pages of the command line and of the HTTP interface from the programs themselves.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generated

import shoal

project = "shoal"
version = release = shoal.__version__
copyright = "the authors of shoal"  # noqa: A001
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples"]
html_theme = "furo"
html_title = f"shoal {release}"
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"  # of blocks that name no language

myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository; `tests/system/test_site.py` checks them
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"


def _as_restructured_text(_app, _what, _name, _obj, _options, lines: list[str]) -> None:
    """Docstrings are written as plain text: code between single backticks, and names of attributes that end in `_`."""
    for i, line in enumerate(lines):
        parts = line.split("`")
        if len(parts) % 2 == 1:
            parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|[|*]", r"\\\g<0>", part) for part in parts[::2]]
            lines[i] = "``".join(parts)


def setup(app):
    """Write the generated pages before Sphinx looks for pages."""
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)
    generated.write(Path(app.srcdir) / "reference")
