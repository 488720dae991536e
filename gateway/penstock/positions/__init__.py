"""Positions of one stream in the terms of all protocols, where its server knows only its own."""
