"""The door between a model's threads and the server.

The python backend of Triton 2.51 (the package nvidia-pytriton) hangs or dies when threads of one model
process start calls and send responses at the same time; NVIDIA's containers have mended that from 26.07 on.
Whoever starts a call or sends a response holds this lock. Both return at once: waiting for an answer, and
asking whether a client has gone, need no lock.
"""

from __future__ import annotations

import threading

GATE = threading.Lock()
