"""A package: otherwise pytest puts this folder on the path, and its folders pass for packages."""
