"""The models of the repository: what runs inside a server's processes."""
