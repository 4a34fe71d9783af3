"""A stand-in for ``tensorrt_llm``: it has the documented signatures and rejects everything else."""

from trtllm_fake.install import FakeTrtllm, install

__all__ = ["FakeTrtllm", "install"]
