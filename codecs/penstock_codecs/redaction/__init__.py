"""Secrets are taken out of captures before these are written; what stays has the same length and can still be read."""

from penstock_codecs.redaction.redactor import Redactor
from penstock_codecs.redaction.rules import SECRET_HEADERS, SECRET_PARAMETERS, RedactionRules

__all__ = ["SECRET_HEADERS", "SECRET_PARAMETERS", "RedactionRules", "Redactor"]
