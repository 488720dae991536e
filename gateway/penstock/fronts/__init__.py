"""Fronts: where clients connect. Each turns its protocol's words into operations on a back."""
