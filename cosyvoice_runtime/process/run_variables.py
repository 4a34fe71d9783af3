"""Environment variables by which the supervisor tells the models of its run."""

PROBE_KEY_VARIABLE = "SUPERVISOR_PROBE_KEY"
"""A secret of the run, by which the entry models know the supervisor's probes."""
