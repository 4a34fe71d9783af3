"""The speech LM on torch."""
