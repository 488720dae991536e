"""Take secrets out of captures before they are written; the rest keeps its length and stays readable."""

from penstock_analysis.redaction.redactor import Redactor
from penstock_analysis.redaction.rules import SECRET_HEADERS, SECRET_PARAMETERS, RedactionRules

__all__ = ["SECRET_HEADERS", "SECRET_PARAMETERS", "RedactionRules", "Redactor"]
