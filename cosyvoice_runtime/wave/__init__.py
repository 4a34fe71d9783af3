"""From speech tokens to samples as far as it has no arithmetic: what every runtime of token2wav shares.

Which tokens come next, which pages and windows they take, what is kept between calls. The networks are those
of :mod:`cosyvoice_runtime.flow` and :mod:`cosyvoice_runtime.vocoder` on torch, and of
:mod:`cosyvoice_runtime.onnx_cpu` on ONNX Runtime. Nothing here imports either.
"""
