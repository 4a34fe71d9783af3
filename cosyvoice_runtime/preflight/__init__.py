"""What would fail in NVIDIA's container, found before anything long starts; see ``__main__``."""
