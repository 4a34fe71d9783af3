"""Audio in and out, resampling, and the features that the networks read.

Reading files needs soundfile; ``audio.read`` is imported by itself, so that the rest runs without it.
Files are written by ``cosyvoice_client.writer``.
"""

from cosyvoice_runtime.audio.audio import Audio

__all__ = ["Audio"]
