"""Handling of records that a protocol cannot carry."""
