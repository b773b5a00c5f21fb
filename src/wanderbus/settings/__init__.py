"""Settings as files and arguments give them: structs, keys, reading and writing (SPEC Q-01)."""
