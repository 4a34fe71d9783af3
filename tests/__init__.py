"""A package: otherwise pytest puts this folder on the path, and tests/triton passes for torch's triton."""
