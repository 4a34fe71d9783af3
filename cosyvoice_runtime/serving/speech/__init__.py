"""The entry models: an utterance from the client's request to its last chunk."""
