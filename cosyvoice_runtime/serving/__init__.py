"""The code of the server's models."""
