"""`penstock pipeline ...`: the jobs as commands. Imports without pyspark, and says how to get it where it is
missing."""

from penstock_spark.cli.main import pipeline_commands

__all__ = ["pipeline_commands"]
