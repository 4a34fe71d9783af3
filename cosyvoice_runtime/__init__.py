"""CosyVoice speech synthesis, all families: text and a voice in, waveform chunks out."""

__version__ = "0.1.0"
