"""Environment variables by which the supervisor tells the models of its run."""

GRPC_URL_VARIABLE = "SUPERVISOR_GRPC_URL"
"""The server's own gRPC port."""
PROBE_KEY_VARIABLE = "SUPERVISOR_PROBE_KEY"
"""A secret of the run, by which the entry models know the supervisor's probes."""
