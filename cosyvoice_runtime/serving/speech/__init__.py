"""cosyvoice2: an utterance from a client's request to its last chunk, by way of the other models."""
