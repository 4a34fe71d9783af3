"""Text that arrives while its speech leaves: contexts of one listener, without any protocol's messages."""
