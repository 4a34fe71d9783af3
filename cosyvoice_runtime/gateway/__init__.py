"""The product's public address: a process for each protocol, between clients and tritonserver.

tritonserver itself listens on Unix sockets in a folder that only its own user may enter. It has no limit on
the size of a request, cannot close single models, and passes on texts of its own that say too much
(docs/security.md). A gateway lets through what is listed in :mod:`~cosyvoice_runtime.gateway.policy`, after
a look at it, and nothing else.
"""
