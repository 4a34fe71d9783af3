"""CosyVoice2 speech synthesis: text and a voice in, 24 kHz waveform chunks out."""

__version__ = "0.1.0"
