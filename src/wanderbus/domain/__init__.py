"""Servers of an event domain; in the backbone one access server with its broker (SPEC J-01, J-04)."""
