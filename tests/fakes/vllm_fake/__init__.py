"""A stand-in for ``vllm``: it has the signatures of a release and rejects everything else."""

from vllm_fake.install import FakeVllm, install
from vllm_fake.signatures import RELEASES

__all__ = ["RELEASES", "FakeVllm", "install"]
