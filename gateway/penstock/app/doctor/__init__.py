"""Checks what an operator would look at before a gateway runs or when one fails; each finding says what to do."""
