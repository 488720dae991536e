"""What an operator would look at before a gateway runs, or when one does not: each finding says what to do."""
