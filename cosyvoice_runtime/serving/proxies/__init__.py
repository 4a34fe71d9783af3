"""Models of the server whose requests the engine answers."""
