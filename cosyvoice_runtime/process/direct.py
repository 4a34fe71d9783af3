"""Calls between the processes of one deployment."""

DIRECT = ("grpc.enable_http_proxy", 0)
"""Option of a gRPC channel: no proxy that the environment names is asked."""
