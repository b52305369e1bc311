"""Settings of the documentation site: `make docs` builds it from the Markdown files where they are.

The source folder is the root of the repository, so that a link between two pages, or to the README,
is the same on the site and on a code host. `toc.yml` has the navigation.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import sunshower

project = "Sunshower"
author = "the authors of Sunshower"
version = release = sunshower.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_external_toc",
]
external_toc_path = "docs/site/toc.yml"
include_patterns = ["README.md", "CHANGELOG.md", "benchmarks/README.md", "docs/**"]
exclude_patterns = ["docs/site", ".*", "build", "sunshower", "tests"]

myst_heading_anchors = 4  # headings have the anchors that code hosts give them

# `name` in a docstring is a link if the site has this name, and code otherwise.
default_role = "py:obj"
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Sunshower {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("old_addresses.js", {"defer": ""})]
templates_path = ["templates"]
html_additional_pages = {"index": "first_page.html"}
html_copy_source = False
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_search_summary = False  # a browser refuses to read them from files
pygments_dark_style = "github-dark"
html_show_sphinx = False
html_show_copyright = False


def name_links_by_title(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Show a page's title in a link whose text is the name of the page's file."""
    for link in doctree.findall(nodes.reference):
        if re.fullmatch(r"(docs/)?[A-Z_]+\.md", link.astext()) and "refuri" in link:
            path = link["refuri"].partition("#")[0].removesuffix(".html")
            title = app.env.titles[
                posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            ]
            link[:] = [nodes.inline("", title.astext())]


def name_the_reference(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Begin a page with links to the pages of docs/api that name it in their first sentences."""
    links = nodes.paragraph("", "Python reference: ", classes=["reference-of-page"])
    for name in sorted(name for name in app.env.titles if name.startswith("docs/api/")):
        first = app.env.doc2path(name).read_text(encoding="utf-8").partition("\n.. ")[0]
        if f":doc:`/{page}`" in first:
            links += nodes.Text(", " if len(links) > 1 else "")
            title = app.env.titles[name].astext()
            uri = app.builder.get_relative_uri(page, name)
            links += nodes.reference("", title, internal=True, refuri=uri)
    heading = next(iter(doctree.findall(nodes.title)), None)
    if heading is not None and len(links) > 1:
        heading.parent.insert(1, links)


def put_pictures_into_the_page(app: Sphinx, doctree: nodes.document, *_: str) -> None:
    """Put the pictures of `pictures.py` into the page itself, so that they have its colours."""
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg" and 'class="drawn"' in (svg := path.read_text(encoding="utf-8")):
            image.replace_self(nodes.raw("", svg, format="html"))


def drop_generated_docstrings(*event: Any) -> None:
    """Show no "Alias for field number 0", which Python gives each field of a NamedTuple."""
    lines: list[str] = event[-1]
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def drop_result_of_classes(*event: Any) -> tuple[str, str | None]:
    """Show no "→ None" of `__init__` for a class that is used like a function, such as `kill`."""
    _, what, _, item, _, signature, result = event
    return signature, None if what == "function" and isinstance(item, type) else result


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", drop_result_of_classes)
    app.connect("autodoc-process-docstring", drop_generated_docstrings)
    app.connect("doctree-resolved", name_links_by_title)
    app.connect("doctree-resolved", name_the_reference)
    app.connect("doctree-resolved", put_pictures_into_the_page)
