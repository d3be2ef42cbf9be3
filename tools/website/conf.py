"""Sphinx's configuration. It is given the sources that `python -m website` writes, and warnings are errors."""

import re
from pathlib import Path

_CMAKE = (Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text(encoding="utf-8")
_VERSION = re.search(r"project\(ciranda\s+VERSION\s+([0-9.]+)", _CMAKE)
assert _VERSION is not None

project = "Ciranda"
author = "the Ciranda developers"
release = version = _VERSION[1]

extensions = ["myst_nb"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["examples/*/*.md"]

nb_execution_mode = "force"  # what notebooks show is what this version does
nb_execution_raise_on_error = True
nb_execution_timeout = 300

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
suppress_warnings = [
    "myst.header",  # pages may begin a list of small headings below a large one
    "ref.python",  # a type in a signature has only its last name, which several modules have
]

smartquotes = False  # they make one dash of the two before an option

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js", "switcher.js"]
html_title = f"Ciranda {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# A page that is opened as a file may not read another: the result's titles are shown, without their text.
html_show_search_summary = False
python_maximum_signature_line_length = 100
c_maximum_signature_line_length = 100
add_module_names = False
