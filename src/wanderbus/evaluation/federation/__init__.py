"""Federation of domains in a model: what the methods cost, by the number of domains (SPEC M-02 to M-05, S-03)."""
