"""Commands of the data pipeline; they need Spark."""
