"""Headers of gRPC and HTTP that tritonserver hands to the models, as parameters of a request."""

CLIENT_HEADER = "x-client-id"
"""Who asks, where that is said: by the client, or by a proxy that knows it."""
CALL_HEADER = "x-call-id"
"""Which call a request came by: a secret between gateway and models."""
LEFT_HEADER = "x-left-call"
"""Asks a model to stop whatever it does for that call, as its client has left."""
PROBE_HEADER = "x-probe"
"""A secret of the run, by which a model knows the supervisor's probes; no gateway passes on a client's."""
HANDED_ON = (CLIENT_HEADER, CALL_HEADER, LEFT_HEADER)
