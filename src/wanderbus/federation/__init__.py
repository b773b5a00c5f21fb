"""Federation: domains of other operators get the events that they want and may have (SPEC M, S-01)."""
