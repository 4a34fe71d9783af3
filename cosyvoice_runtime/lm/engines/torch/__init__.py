"""Engine torch: the library's own batch decoder."""
