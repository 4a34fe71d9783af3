"""Texts, load, figures and reports that the benchmarks share."""
