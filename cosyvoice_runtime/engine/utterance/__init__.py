"""One utterance, driven from its text to its last chunk."""
