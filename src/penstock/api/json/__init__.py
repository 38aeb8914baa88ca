"""The JSON of HTTP: what clients send and get, and its translation into commands and from replies."""
