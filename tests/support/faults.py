"""A gateway with faults, for tests: each rule is for streams of its own name."""

from __future__ import annotations

import json
from typing import Any

from support.process import CONFIG, GatewayProcess

__all__ = ["faults_of", "injected", "with_faults"]


def with_faults(*rules: dict[str, Any], config: str = CONFIG) -> str:
    """A configuration with these rules, each given by its keys; `name` is also the stream's where none is given."""
    parts = [config]
    for rule in rules:
        keys = {"stream": rule["name"], **rule}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]
        parts.append("\n".join(["[[faults]]", *lines]).replace("{", "{{").replace("}", "}}"))
    return "\n\n".join(parts) + "\n"


def injected(gateway: GatewayProcess, rule: str) -> list[str]:
    """Return the actions of a rule, as logged."""
    return [event["action"] for event in gateway.events("fault_injected") if event["rule"] == rule]


def faults_of(text: str) -> dict[str, float]:
    """For each rule how often it was injected, from the text of the metrics."""
    lines = [line for line in text.splitlines() if line.startswith("penstock_faults_total{")]
    return {line.split('rule="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
