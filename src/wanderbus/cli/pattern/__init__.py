"""The commands of ``wanderbus pattern``."""
