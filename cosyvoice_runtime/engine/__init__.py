"""The engine: one process that computes everything for an utterance, and drives utterances beside its
networks."""
