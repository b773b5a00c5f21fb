"""Watching a server from the shell: its health, and what it does at present."""
