"""Texts about Kafka listeners for people: reports, plans of losses, and the first commands."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.address import Address
from penstock.model.features import Feature
from penstock.model.operations import Capability
from penstock.protocols.plugin import Example
from penstock.protocols.tables import ConfigView
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item, bodies, carried
from penstock_kafka.config import KafkaBackTable, KafkaListener

__all__ = ["KafkaSide", "back_side", "commands", "describe", "describe_names"]


class KafkaSide(FrontSide):
    """Clients of Kafka, whose records have keys, headers and values."""

    def appends(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of values, of keys and headers, and of timestamps."""
        yield from bodies(back, "values")
        headers, empty, _ = carried(back)
        yield headers._replace(what="keys and headers")
        yield empty._replace(what="empty values")
        yield Item("timestamps", Fate.KEPT, back.timestamps_kept)
        if not back.event_times:
            yield Item(
                "timestamps that fall", Fate.DROPPED, "the server's are stored, and the answer tells the last one"
            )

    def positions(self, back: BackSide) -> Iterator[Item]:  # noqa: ARG002
        """Yield the fate of positions that its clients read."""
        yield Item("offsets", Fate.KEPT, "they are the sequence numbers")


def back_side(table: KafkaBackTable) -> BackSide:
    """See `penstock.protocols.plugin.BackKind.side`."""
    from penstock_kafka.back import CAPABILITIES  # the first commands are shown without it

    return BackSide(
        kind="kafka",
        capabilities=CAPABILITIES | {Capability.BYTES},
        delivery=table.delivery,
        loss=LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.REFUSE),
        kept={Feature.HEADERS: "if their names are UTF-8", Feature.EMPTY_BODY: ""},
        record_ids=True,
        timestamps_kept="in topics with message.timestamp.type = CreateTime; others have the broker's",
        event_times=True,
        timestamps_read="they are those of the records, raised where they would fall",
        finds_out="the gateway sends the batch again with its number as a producer, and the leader stores it once",
    )


def describe(listener: KafkaListener, config: ConfigView) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = " by TLS" if listener.tls_certificate else ""
    closed = (listener.auth_tokens or config.access_tokens is not None) and not listener.anonymous
    those = "clients with a token, by SASL" if closed else "any client"
    yield f"Kafka{carrier} on {listener.bind}, for {listener.clients(those)}"


def describe_names(listener: KafkaListener) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe_names`."""
    yield (
        f"A topic is a stream of basin {listener.basin}; partition 2 of several is stream TOPIC/2 (docs/names.md). "
        "Stream TOPIC and streams TOPIC/0, TOPIC/1, ... exclude each other there, for clients of all protocols"
    )


def commands(listener: KafkaListener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`. It leaves appending to other kinds if there are any."""
    if (example.first and not example.alone) or listener.tls_certificate is not None:
        return
    if example.stream.replace("-", "").replace("_", "").isalnum():
        if example.first:
            append = f"printf 'first\\nsecond\\n' | kcat -b {address} -t {example.stream} -P"
            yield from ("", "  # append two records to a Kafka topic", f"  {append}")
        yield from ("", "  # read it as a Kafka topic", f"  kcat -b {address} -t {example.stream} -C -e")
