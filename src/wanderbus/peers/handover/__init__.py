"""Moves of sessions between the servers of a domain: both ends, their messages, and the drain of a server."""
