"""HTTP: one table of routes, served by uvicorn in our own loop; the OpenAPI document is made from the same table.

`table` lists the routes, `door` is the ASGI application, `serving` the life of the process. Nothing here is imported
before somebody serves.
"""
