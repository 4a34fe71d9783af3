"""The flow on ONNX Runtime and numpy."""
