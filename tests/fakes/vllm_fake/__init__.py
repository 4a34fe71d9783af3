"""A stand-in for ``vllm``: it has the signatures of release 0.24.0 and rejects everything else."""

from vllm_fake.install import FakeVllm, install

__all__ = ["FakeVllm", "install"]
