"""Makes the sources of the site, of which Sphinx makes its pages: `make site`.

The pages are those of the repository, in its layout, so that their links work in both. `links` rewrites those that
lead to sources. The reference is written from what it is about: `api` reads the package's docstrings, `c_header` the
headers, `commands` the parsers of the command line, and `gallery` the examples.
"""
