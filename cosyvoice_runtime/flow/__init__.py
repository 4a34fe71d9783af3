"""The flow: speech tokens and a voice in, mel out."""
