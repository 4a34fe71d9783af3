"""The sample rate that several parts share."""

EXTRACTOR_SAMPLE_RATE = 16_000
"""Hz that the speech tokenizer and the speaker encoder take, and so the least of a reference."""
