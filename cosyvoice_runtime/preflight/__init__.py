"""Checks of NVIDIA's containers before anything long starts; see ``__main__``."""
