"""Take secrets out of captures before they are written; the rest keeps its length and stays readable.

`rules` says what is secret, and is all that a configuration needs; `redactor` blanks it.
"""
