"""The environment variables by which the supervisor passes facts of its run to the models."""

PROBE_KEY_VARIABLE = "SUPERVISOR_PROBE_KEY"
"""A secret of the run, by which the entry models recognise the supervisor's probes."""
