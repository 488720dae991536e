"""Configuration of the listeners: one array of tables for each kind that a plug-in brings."""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from penstock.core.config_fields import ONE_OR_MORE, Table
from penstock.model.byte_layout import Layout
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.tables import ConfigView, ListenerTable

__all__ = ["Listeners", "default_listeners", "listener_kind_of"]


class _Listeners(Table, frozen=True, kw_only=True):
    """Listeners for clients; a protocol without a table is off."""

    if TYPE_CHECKING:  # the fields are the kinds of listeners, see below

        def __init__(self, **tables: tuple[ListenerTable, ...]) -> None: ...

        def __getattr__(self, kind: str) -> tuple[Any, ...]: ...

    def __post_init__(self) -> None:
        labels = [label for label, _ in self.labelled()]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"there are several listeners {label}: give each a name of its own")
        for kind, listener_kind in listener_kinds().items():
            tables = getattr(self, kind)
            for needed in listener_kind.needs if tables else ():
                if not getattr(self, needed):
                    reason = "to which it sends its clients"
                    raise ValueError(f"[listeners.{kind}] needs [listeners.{needed}], {reason}")
            for table in tables:
                table.check_proxies(over_http=listener_kind.over_http)
                listener_kind.check(table, ConfigView(listeners=tuple(self.labelled())))

    def labelled(self) -> Iterator[tuple[str, ListenerTable]]:
        """Yield every listener with its label in routes: its kind, and its name if it has one (`s2`, `s2.public`)."""
        for kind in self.__struct_fields__:
            for listener in getattr(self, kind):
                yield f"{kind}.{listener.name}" if listener.name else kind, listener

    @property
    def envelopes(self) -> Layout:
        """The records that the embedded store and other backs envelope: those that any listener needs enveloped."""
        kinds = listener_kinds()
        needed = (kinds[listener_kind_of(label)].envelopes(listener) for label, listener in self.labelled())
        return reduce(or_, needed, Layout.PLAIN)


if TYPE_CHECKING:
    Listeners = _Listeners
else:
    Listeners = msgspec.defstruct(
        "Listeners",
        [(name, Annotated[tuple[kind.table, ...], ONE_OR_MORE], ()) for name, kind in listener_kinds().items()],
        bases=(_Listeners,),
        namespace={"__doc__": _Listeners.__doc__},
        frozen=True,
        kw_only=True,
    )


def listener_kind_of(label: str) -> str:
    """Return the kind of the listener with this label."""
    return label.partition(".")[0]


def default_listeners() -> Listeners:
    """Return the listeners without a configuration file."""
    return Listeners(**{name: (kind.table(),) for name, kind in listener_kinds().items() if kind.by_default})
