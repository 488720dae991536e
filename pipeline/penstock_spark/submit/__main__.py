"""`python -m penstock_spark.submit` prints the path of the file for `spark-submit`."""

from pathlib import Path

print(Path(__file__).resolve().with_name("penstock_pipeline.py"))
