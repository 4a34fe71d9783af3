"""Fused kernels of the vocoder."""
