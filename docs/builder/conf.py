"""Configuration of Sphinx. `bin/docs` writes the source folder and runs it."""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Identity platform"
html_title = "Identity platform"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
nitpicky = True
myst_heading_anchors = 6
myst_url_schemes = {"https": None, "http": None, "mailto": None, "platform": "{{path}}"}

html_theme = "furo"
html_theme_options = {
    # The button beside the title shows the Markdown of the page.
    "top_of_page_buttons": ["view"],
    "source_view_link": "/docs/{filename}",
}
html_copy_source = html_use_index = False
html_show_sphinx = False
html_favicon = "../../console/static/console/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]


def link_to_markdown(app: Sphinx, pagename: str, templatename: str, context: dict[str, str], doctree: object) -> None:
    """Tell programs where the Markdown of the page is."""
    if doctree is not None:
        name = pagename.rpartition("/")[2]
        context["metatags"] = (
            context.get("metatags", "") + f'<link rel="alternate" type="text/markdown" href="{name}.md">'
        )


def link_to_platform(app: Sphinx, docname: str, source: list[str]) -> None:
    """Mark links like `/docs/api/`, which are no pages of the site but paths of the platform that serves it."""
    source[0] = source[0].replace("](/", "](platform:/")


def setup(app: Sphinx) -> dict[str, bool]:
    # The import graph of the architecture page: GitHub draws it, the site shows its text.
    app.add_lexer("mermaid", TextLexer)
    app.connect("html-page-context", link_to_markdown)
    app.connect("source-read", link_to_platform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
