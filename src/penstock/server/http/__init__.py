"""HTTP: one table of routes, and one protocol that serves it; the OpenAPI document is made from the same table.

`table` lists the routes, `connection` is the protocol, `app` the application. The shapes of JSON are in `api.json`.
Nothing here is imported before a process serves.
"""
