"""GPU code that all networks share: CUDA graphs, buckets, partitions, copies, and facts of NVIDIA's
driver."""
