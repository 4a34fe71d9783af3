"""How much each key may ask for: counted in one process, or in Redis for several of them."""
