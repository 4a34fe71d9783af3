"""ONNX graphs of the flow and the vocoder, written from the networks' weights."""
