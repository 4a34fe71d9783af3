"""Proxy models, whose requests another model's process answers."""
