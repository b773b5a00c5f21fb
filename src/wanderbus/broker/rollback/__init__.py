"""Rollback: the server notices that its log is an earlier copy."""
