"""gRPC channels between the processes of one deployment."""

DIRECT = ("grpc.enable_http_proxy", 0)
"""Channel options that bypass the proxy of the environment."""
