"""ONNX Runtime on a CPU: sessions, memory, and graphs in the making, for every network."""
