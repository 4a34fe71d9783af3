"""The networks of token2wav, opened for the engine on torch or on ONNX Runtime."""
