"""The commands of `penstock pipeline`, for spark-submit, which needs a file:

    spark-submit --master spark://host:7077 "$(python -m penstock_spark.submit)" run recordings

docs/pipeline.md explains what the machines of a cluster need, and how to install it there.
"""

from penstock_spark.cli import pipeline_commands

if __name__ == "__main__":
    pipeline_commands(prog_name="penstock pipeline")
