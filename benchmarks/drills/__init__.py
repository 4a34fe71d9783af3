"""A fleet of this machine, and what may happen to it while people listen."""
