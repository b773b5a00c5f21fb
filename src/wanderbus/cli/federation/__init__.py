"""Commands of a federation."""
