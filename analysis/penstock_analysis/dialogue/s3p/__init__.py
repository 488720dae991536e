"""S3P conversations as messages (S3P 0.2.0)."""

from penstock_analysis.dialogue.s3p.conversation import S3PDialogue

__all__ = ["S3PDialogue"]
