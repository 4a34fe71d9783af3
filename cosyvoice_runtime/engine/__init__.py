"""The engine: one process that computes all that an utterance needs, and drives it there."""
