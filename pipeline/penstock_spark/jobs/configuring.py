"""Settings that a session needs for the format of the tables that it writes. Imports without pyspark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock_spark.running.settings import JobSettings

__all__ = ["CATALOG", "spark_settings", "texts"]

CATALOG: Final = "penstock"
"""Catalog of Iceberg's tables, at the target's path."""

_OF_FORMATS: Final[dict[str, dict[str, str]]] = {
    "parquet": {},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
    },
}


def spark_settings(settings: JobSettings) -> dict[str, str]:
    """Return `spark.*` keys: those that the target's format needs, overridden by the user's."""
    made = dict(_OF_FORMATS[settings.target.format])
    if settings.target.format == "iceberg":
        made[f"spark.sql.catalog.{CATALOG}.warehouse"] = settings.target.path
    return made | texts(settings.spark.conf)


def texts(values: Mapping[str, object]) -> dict[str, str]:
    """Return options and settings as text, as Spark takes them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
