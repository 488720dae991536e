"""Take secrets out of captures before they are written; the rest keeps its length and stays readable."""

from penstock_analysis.redaction.redactor import Redactor
from penstock_analysis.redaction.rules import RedactionRules

__all__ = ["RedactionRules", "Redactor"]
