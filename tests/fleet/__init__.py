"""A package: its fixtures last as long as its tests, and its modules may have the names of others."""
