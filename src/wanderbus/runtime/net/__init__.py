"""Sockets, connections, TLS and name resolution."""
