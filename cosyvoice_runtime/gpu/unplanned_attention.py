"""Attention with many different sizes on a GPU."""

from __future__ import annotations

import torch


def attend_unplanned() -> None:
    """Disable cuDNN's attention, which plans each new size for tens of ms.

    PyTorch prefers it on Hopper. At the start that was two fifths of the time in which calls are captured on
    an H200, and a prompt of a length that no captured call has would wait for it while somebody listens. The
    other kernels (flash, memory-efficient) plan nothing.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
