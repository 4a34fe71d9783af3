"""What the networks share on a GPU: CUDA graphs, buckets, partitions, copies, and NVIDIA's driver."""
