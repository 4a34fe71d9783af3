"""What the benchmarks share: texts, load, figures, reports."""
