"""Which word is where: the way of speech tokens through their text, from the speech LM's own attention."""
