"""The vocoder on ONNX Runtime and numpy."""
