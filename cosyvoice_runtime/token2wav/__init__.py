"""Speech tokens to samples: the flow, a change of speed, the vocoder, for many utterances at once.

The networks are those of :mod:`cosyvoice_runtime.flow` and :mod:`cosyvoice_runtime.vocoder`, on torch or on
ONNX Runtime.
"""
