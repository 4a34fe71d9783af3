"""Compiled networks in place of torch modules: ONNX Runtime on the CPU, TensorRT on a GPU."""
