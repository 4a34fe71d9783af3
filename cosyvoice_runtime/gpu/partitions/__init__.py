"""A GPU that is divided: partitions of its multiprocessors, and who computes on them when."""
