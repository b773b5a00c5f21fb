"""Servers: the host of a process, and the roles that it can have."""
