"""Attention of many sizes on a GPU."""

from __future__ import annotations

import torch


def attend_unplanned() -> None:
    """Leave cuDNN's attention to others: it plans each size that it has not seen, which takes tens of ms.

    PyTorch prefers it on Hopper. At the start that was two fifths of the time in which calls are captured on
    an H200, and a prompt of a length that no captured call has would wait for it while somebody listens. The
    other kernels (flash, memory-efficient) plan nothing.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
