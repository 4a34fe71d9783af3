"""Audio in and out, resampling, and the features that the networks read.

Reading and writing files needs soundfile; ``audio.read`` and ``audio.write`` are imported by themselves,
so that the rest runs without it.
"""

from cosyvoice_runtime.audio.audio import Audio

__all__ = ["Audio"]
