"""The speech LM on ONNX Runtime and numpy."""
