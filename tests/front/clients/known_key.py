"""The key that the front knows."""

KEY = "sk-anna"
