"""Whether a checkpoint's numbers can be trusted, in float32 and in the precision that is served."""
