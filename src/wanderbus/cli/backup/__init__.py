"""``wanderbus backup`` and ``wanderbus restore``."""
