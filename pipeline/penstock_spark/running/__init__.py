"""Run Spark: settings (`config/pipeline.toml`), a session, detection of Java, progress on the terminal, and failures
reduced to their causes."""

from penstock_spark.running.failures import CannotRun, JobFailed, cause
from penstock_spark.running.loading import SettingsError, load_settings, parse_settings
from penstock_spark.running.progress import progress_lines
from penstock_spark.running.session import open_session
from penstock_spark.running.settings import CaptureSettings, JobSettings, SourceSettings, SparkSettings, TargetSettings

__all__ = [
    "CannotRun",
    "CaptureSettings",
    "JobFailed",
    "JobSettings",
    "SettingsError",
    "SourceSettings",
    "SparkSettings",
    "TargetSettings",
    "cause",
    "load_settings",
    "open_session",
    "parse_settings",
    "progress_lines",
]
