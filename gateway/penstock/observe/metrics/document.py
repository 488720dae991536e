"""Writes the metrics' documentation: `docs/metrics.md`.

`python -m penstock.observe.metrics.document` rewrites it; the tests fail if it differs from the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.observe.metrics.families import FAMILIES, LABELS, SECTIONS, AnyFamily
from penstock.observe.metrics.series import MetricKind

__all__ = ["metrics_page"]

_PAGE = """\
# Metrics

To watch a gateway over time, let Prometheus ask its [management listener](management.md) for `/metrics`. It answers in
Prometheus' text format, or in OpenMetrics if the client accepts `application/openmetrics-text`:

```sh
curl http://127.0.0.1:9600/metrics
```

[`config/prometheus/prometheus.yml`](../config/prometheus/prometheus.yml) has a job that scrapes it,
[`config/prometheus/alerts.yml`](../config/prometheus/alerts.yml) alerts, and
[`config/grafana/penstock.json`](../config/grafana/penstock.json) is a dashboard that Grafana imports as it is;
`make judges` checks it against the types of [Grafana's own schema](judges.md).

- No label names a connection, client or stream: the number of series depends only on the configuration.
- Counters start at 0 with the process. A series with labels appears with its first event; one without labels is
  always present.
- All times are in seconds, all sizes in bytes. The bounds of each histogram follow its meaning.
"""


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    return "\n".join([_PAGE, *_labels(), *_sections()])


def _labels() -> Iterator[str]:
    yield "## Labels\n"
    yield "| label | meaning |\n|---|---|"
    for name, meaning in LABELS.items():
        yield f"| `{name}` | {meaning} |"
    yield ""


def _sections() -> Iterator[str]:
    ends = [first for _, first in SECTIONS[1:]] + [len(FAMILIES)]
    for (title, first), end in zip(SECTIONS, ends, strict=True):
        yield f"## {title}\n"
        yield "| metric | type | labels | meaning |\n|---|---|---|---|"
        for family in FAMILIES[first:end]:
            yield _row(family)
        yield ""


def _row(family: AnyFamily) -> str:
    labels = ", ".join(f"`{label}`" for label in family.label_names)
    meaning = family.meaning
    if family.kind is MetricKind.HISTOGRAM:
        meaning += f" Bounds: {', '.join(f'{bound:g}' for bound in family.bounds)}."
    return f"| `{family.name}` | {family.kind.value} | {labels} | {meaning} |"


if __name__ == "__main__":
    (Path.cwd() / "docs" / "metrics.md").write_text(metrics_page(), encoding="utf-8")
