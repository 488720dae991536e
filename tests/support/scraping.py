"""Scrapes of a gateway's `/metrics`, parsed with Prometheus' own parsers."""

from __future__ import annotations

import http.client
from typing import Final

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """The samples of one answer. `families`: as parsed."""

    def __init__(self, port: int, accept: str = "") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/metrics", headers={"accept": accept} if accept else {})
            answer = connection.getresponse()
            assert answer.status == 200
            self.content_type = answer.headers["content-type"]
            self.text = answer.read().decode()
        finally:
            connection.close()
        parse = open_metrics if "openmetrics" in self.content_type else prometheus
        self.families: list[Metric] = list(parse(self.text))

    def sum(self, name: str, **labels: str) -> float:
        """Of all series of this sample's name that have these labels."""
        return sum(
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )
