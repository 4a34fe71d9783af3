"""The flow on torch."""
