"""Fused kernels of the speech LM."""
