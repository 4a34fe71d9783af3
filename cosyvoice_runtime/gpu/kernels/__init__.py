"""Fused GPU kernels in the Triton language, each with its plain PyTorch equivalent.

A file holds one kernel, the function that launches it and its plain twin, which takes the same arguments.
Under ``TRITON_INTERPRET=1`` the kernels run on a CPU.
"""
