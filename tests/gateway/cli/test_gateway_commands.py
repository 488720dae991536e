"""Commands about a running gateway, each in words and as JSON, and `--json` of all commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from support.process import CONFIG, GatewayProcess

from penstock.cli import main
from penstock.cli.listing import ListingGroup
from penstock.cli.main import COMMANDS

AGAINST = """
[management]
bind = "127.0.0.1:{management_port}"

[recorder]
directory = "{data}/recordings"
start = false

[backs.away]
kind = "s2"
address = "127.0.0.1:1"

[[routes]]
name = "orders"
match = "prefix"
stream = "orders/"
back = "away"

[[routes]]
name = "rest"
back = "embedded"
mirror = "away"
"""

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a command against a gateway."""
    with GatewayProcess(CONFIG + AGAINST) as gateway:

        def command(*arguments: str, code: int = 0) -> Result:
            address = f"127.0.0.1:{gateway.management_port}"
            done = CliRunner().invoke(main, [*arguments, "--management", address])
            assert done.exit_code == code, done.output
            return done

        yield command


def rows(done: Result) -> list[list[str]]:
    """Return the cells of a table that have no spaces in them."""
    return [line.split() for line in done.stdout.splitlines()]


def objects(done: Result) -> list[Any]:
    """Return the JSON of each line."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_backs(run: Run) -> None:
    head, embedded, away = rows(run("backs"))
    assert head == ["name", "kind", "address", "circuit", "since", "reason"]
    assert embedded == ["embedded", "embedded", "closed"]
    assert away[:3] == ["away", "s2", "127.0.0.1:1"]
    assert [one["name"] for one in objects(run("backs", "--json"))] == ["embedded", "away"]


def test_routes(run: Run) -> None:
    head, orders, rest = run("routes").stdout.splitlines()
    assert head.split() == ["name", "back", "circuit", "mirror", "streams"]
    assert orders.split()[:2] == ["orders", "away"] and "orders/" in orders
    assert rest.split()[:3] == ["rest", "embedded", "closed"] and "away: " in rest
    assert [one["mirror"] is None for one in objects(run("routes", "--json"))] == [True, False]


def test_the_log_level_is_printed_and_set(run: Run) -> None:
    assert run("log-level").stdout == "info\n"
    assert run("log-level", "debug").stdout == "debug\n"
    assert objects(run("log-level", "--json")) == [{"level": "debug"}]
    assert run("log-level", "info", "--json").stdout == '{"level":"info"}\n'
    assert "'loud' is not one of 'debug'" in run("log-level", "loud", code=2).stderr


def test_recordings_are_started_listed_and_stopped(run: Run) -> None:
    assert run("recordings").stdout == run("record", "list").stdout == "no recordings are running\n"
    assert objects(run("recordings", "--json")) == []
    (started,) = objects(run("record", "start", "--stream", "penstock/a*", "--json"))
    assert started["selection"] == {"streams": ["penstock/a*"]}
    assert "recording 1: recording (1 file), stream penstock/a*" in run("recordings").stdout
    assert [one["id"] for one in objects(run("recordings", "--json"))] == [started["id"]]
    (stopped,) = objects(run("record", "stop", str(started["id"]), "--json"))
    assert stopped["state"] == "stopped"
    assert "no recording '1' is running" in run("record", "stop", "1", code=1).stderr


def test_other_results_as_json(run: Run) -> None:
    assert objects(run("positions", "penstock/none", "--seq-num", "0", "--json", code=1)) == []
    (cut_over,) = objects(run("cut-over", "rest", "--wait", "0", "--json", code=1))
    assert cut_over["swapped"] is False and cut_over["reasons"]
    (reloaded,) = objects(run("reload", "--json"))
    assert reloaded.keys() == {"changed"}


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    for command in ("backs", "routes", "log-level", "recordings"):
        done = CliRunner().invoke(main, [command, "--management", "127.0.0.1:1"])
        assert done.exit_code == 1 and "Is the gateway running" in done.stderr


# ---- --json --------------------------------------------------------------------------------------------------------

WITHOUT = {
    "completion": "prints a script",
    "create": "has no result",
    "decode": "prints what bytes are, for people; `penstock export` writes messages of captures",
    "delete": "has no result",
    "export": "has --format",
    "extcap install": "has no result",
    "follow": "has --format",
    "mock": "prints what the tests print; --report writes JSON",
    "pipeline": "a distribution of its own",
    "read": "has --format",
    "records": "prints nothing but JSON lines",
    "serve": "logs as [log] says",
    "token password": "prints one word",
    "token revoke": "has no result",
    "trim": "has no result",
}
"""Commands without `--json`, and why."""
LINES = "Print JSON lines, one for each "
OBJECT = "Print the result as a JSON object."


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command of Penstock's own with its name, those of groups, too."""
    assert isinstance(main, ListingGroup)
    with click.Context(main) as context:
        for name in COMMANDS:
            _, command, _ = main.resolve_command(context, [name])
            assert command is not None
            if isinstance(command, click.Group):
                yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
            else:
                yield name, command


def test_each_command_with_a_result_prints_it_as_json_in_one_of_two_ways() -> None:
    lacking = set()
    for name, command in commands():
        options = [one for one in command.params if isinstance(one, click.Option) and "--json" in one.opts]
        if not options:
            lacking.add(name)
            continue
        (option,) = options
        assert option.help is not None
        assert option.help == OBJECT or option.help.startswith(LINES), name
        assert option.name == ("as_json" if option.help == OBJECT else "as_lines"), name
    assert lacking == WITHOUT.keys() - {"pipeline"}


def test_a_shell_completes_the_commands_and_their_arguments() -> None:
    def completed(words: str) -> list[str]:
        environment = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = CliRunner().invoke(main, prog_name="penstock", env=environment)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert {"backs", "recordings", "routes"} <= set(completed("penstock "))
    assert completed("penstock log-l") == ["log-level"]
    assert completed("penstock log-level w") == ["warning"]
    assert "--json" in completed("penstock backs --j")
