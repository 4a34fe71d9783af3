"""Checks of a converted checkpoint and of the build's flags before a build starts."""
