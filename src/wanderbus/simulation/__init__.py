"""The simulator: the very machines of the product under a seeded world of loss, moves and crashes (DESIGN rule 3)."""
