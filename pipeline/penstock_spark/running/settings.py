"""The configuration of the pipeline: `config/pipeline.toml`, checked, every fault named with its place.

[spark]     master = "local[*]", application name, any `spark.*` configuration
[source]    endpoint, streams, token (a reference to a file or a variable, never itself), TLS
[captures]  path
[target]    path, format (parquet, delta, iceberg), compression
"""

from __future__ import annotations
