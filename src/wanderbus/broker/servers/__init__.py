"""Other servers of the domain: their users and their sessions here (SPEC K-02)."""
