"""Methods by which the filters of domains get around: multicast, rendezvous, tree (SPEC M-02 to M-04)."""
