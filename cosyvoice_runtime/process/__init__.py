"""Processes, threads, sockets and logs: what every process of a server needs of the system."""
