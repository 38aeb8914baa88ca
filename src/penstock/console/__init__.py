"""The console: pages for browsers that act through the HTTP routes, with the rights of the user's own key.

There is no Python in here. `static` is served by `server/http/console.py`; `static/libraries` is written by
`tools/console_libraries.py`.
"""
