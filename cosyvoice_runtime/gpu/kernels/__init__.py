"""Fused GPU kernels in the Triton language, each beside the plain PyTorch that it equals.

A file holds one kernel, the function that launches it and its plain twin, which takes the same arguments.
Under ``TRITON_INTERPRET=1`` the kernels run on a CPU.
"""
