"""Files of token2wav for ONNX Runtime: graphs of the flow and the vocoder."""
