"""Settings of Sphinx for the site of these pages: `make docs` builds it into dist/site.

Nothing is loaded from the network, neither by the build nor by the pages: the theme brings its styles and scripts, the
fonts are those of the system, and the search runs in the browser.
"""

project = "Penstock"
html_title = "Penstock"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
highlight_language = "none"
