"""`python -m penstock_spark.submit` prints where the file for `spark-submit` is."""

from pathlib import Path

print(Path(__file__).resolve().with_name("penstock_pipeline.py"))
