"""Engines of the speech LM."""
