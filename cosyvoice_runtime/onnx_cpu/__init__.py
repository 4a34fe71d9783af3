"""The networks on ONNX Runtime and numpy, without PyTorch."""
