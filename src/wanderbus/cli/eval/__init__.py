"""The commands ``wanderbus eval``."""
