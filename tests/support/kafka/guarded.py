"""A broker of Apache Kafka whose clients must authenticate by SASL, with and without TLS."""

from __future__ import annotations

from pathlib import Path

from support.ports import free_ports
from support.real_backs import Address, KafkaBroker
from support.tls.certificates import self_signed

__all__ = ["GuardedBroker"]

_MODULES = "org.apache.kafka.common.security"


class GuardedBroker(KafkaBroker):
    """A broker with two more listeners, on which `NAME` logs in with `SECRET` by any mechanism. `certificate`: the file
    of the one that the second of them shows."""

    NAME = "plant"
    SECRET = "a-secret-of-plant"

    def __init__(self) -> None:
        super().__init__()
        plain, secure = free_ports(2)
        self.plain: Address = ("127.0.0.1", plain)
        self.secure: Address = ("127.0.0.1", secure)
        self.certificate, key = self_signed(self.directory)
        self._keys = self.directory / "keys.pem"
        self._keys.write_text("".join(Path(one).read_text() for one in (key, self.certificate)))

    def format_options(self) -> list[str]:
        return [
            option
            for bits in (256, 512)
            for option in ("--add-scram", f"SCRAM-SHA-{bits}=[name={self.NAME},password={self.SECRET}]")
        ]

    def settings(self) -> dict[str, object]:
        found = super().settings()
        added = {"guarded": self.plain, "secured": self.secure}
        for key in ("listeners", "advertised.listeners"):
            found[key] = ",".join(
                [str(found[key]), *(f"{name.upper()}://{host}:{port}" for name, (host, port) in added.items())]
            )
        found["listener.security.protocol.map"] = (
            f"{found['listener.security.protocol.map']},GUARDED:SASL_PLAINTEXT,SECURED:SASL_SSL"
        )
        found["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        users = f'{_MODULES}.plain.PlainLoginModule required user_{self.NAME}="{self.SECRET}";'
        for name in added:
            found[f"listener.name.{name}.plain.sasl.jaas.config"] = users
            for bits in (256, 512):
                found[f"listener.name.{name}.scram-sha-{bits}.sasl.jaas.config"] = (
                    f"{_MODULES}.scram.ScramLoginModule required;"
                )
        found["listener.name.secured.ssl.keystore.type"] = "PEM"
        found["listener.name.secured.ssl.keystore.location"] = self._keys
        return found
