"""Settings that several processes do not support are refused by name."""

import pytest
from support.markdown import DOCUMENTS

from penstock.app.config import ConfigError, parse_config
from penstock.app.report import report

S2 = "workers = 2\n[listeners.s2]\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[backs.far]\nkind = 's2'\naddress = '127.0.0.1:1'\n", "[backs]"),
        ("[listeners.segment]\n[listeners.controller]\n", "[listeners.controller]"),
        ("[recorder]\ndirectory = 'captures'\n", "[recorder]"),
    ],
)
def test_what_is_for_one_process_alone_is_refused(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match="a single process") as refused:
        parse_config(S2 + text, "gateway.toml")
    assert "workers = 2" in str(refused.value) and named in str(refused.value)
    assert parse_config((S2 + text).replace("workers = 2", "workers = 1"), "gateway.toml").workers == 1


@pytest.mark.parametrize("number", ["0", "65", "'2'"])
def test_a_number_of_workers_is_from_1_to_64(number: str) -> None:
    with pytest.raises(ConfigError, match="workers"):
        parse_config(f"workers = {number}\n[listeners.s2]\n", "gateway.toml")


def test_the_documents_configuration_runs_as_it_says() -> None:
    text = (DOCUMENTS / "workers.md").read_text().split("```toml\n")[1].split("```")[0]
    config = parse_config(text, "gateway.toml")
    assert config.workers == 2
    assert "2 workers serve clients" in report(config, "it")
