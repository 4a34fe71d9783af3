"""What runs the speech LM: one folder for each engine, with all that belongs to it."""
