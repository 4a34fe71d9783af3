"""The one place that knows Triton: its tensors, replies, calls between models and errors.

Modules that import ``triton_python_backend_utils`` work only inside a server's model process.
"""
