"""One process for several models: they compute there, and are called there without the server in between."""
