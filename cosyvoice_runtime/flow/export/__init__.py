"""ONNX graphs of the flow, written from its weights."""
