"""The vocoder: mel to waveform, whole or in chunks of any size."""
