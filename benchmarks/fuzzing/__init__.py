"""Requests that are valid but for one thing, how they are sent, and what answers tell of the server."""
