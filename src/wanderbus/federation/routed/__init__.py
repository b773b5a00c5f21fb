"""Links between domains that have none of their own: the messages go along the tree of a type (SPEC M-04)."""
