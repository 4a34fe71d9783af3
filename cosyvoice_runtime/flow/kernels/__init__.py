"""Fused kernels of the flow."""
