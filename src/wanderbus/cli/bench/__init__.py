"""Measurements of a server from the shell."""
