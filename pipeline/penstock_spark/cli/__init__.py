"""`penstock pipeline ...`: the jobs as commands. Imports without pyspark, and explains how to install it if it is
missing."""

from penstock_spark.cli.main import pipeline_commands

__all__ = ["pipeline_commands"]
