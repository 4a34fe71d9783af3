"""Kernels compiled ahead of their first launch, on all cores at once; no GPU is needed."""
