"""The only code that uses Triton's API: tensors, replies and errors.

Modules that import ``triton_python_backend_utils`` work only inside a server's model process.
"""
