"""Complete checkpoint directories with random weights, for tests (`tiny`) and benchmarks (`full`)."""

from making.checkpoint_directory import make_checkpoint

__all__ = ["make_checkpoint"]
