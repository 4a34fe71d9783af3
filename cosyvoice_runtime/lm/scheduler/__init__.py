"""In-flight batching: requests of many clients in one engine, joining and leaving between two tokens."""
