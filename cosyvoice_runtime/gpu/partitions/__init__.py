"""The division of a GPU: partitions of its multiprocessors, and what computes on them when."""
