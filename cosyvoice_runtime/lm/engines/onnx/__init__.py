"""The engine ``onnx``: the speech LM on ONNX Runtime and numpy, on a CPU."""
