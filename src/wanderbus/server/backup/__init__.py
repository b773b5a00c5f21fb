"""Backups of a server's data directory, and their restoration."""
