"""A coordinator of groups with a clock and a store that tests hold in their hands."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.coordinator import GroupCoordinator
from penstock_kafka.groups.messages import (
    GroupLimits,
    GroupRecord,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Membership,
    RequestAnswered,
    SaveGroup,
    SyncAnswer,
    SyncRequest,
)
from penstock_kafka.groups.states import GroupState

LIMITS = GroupLimits()
GROUP = "g"
RANGE = (("range", b"r"),)


class Desk:
    """Requests to a coordinator, and the answers to them by ticket; saves succeed at once, unless `holds`."""

    def __init__(self, limits: GroupLimits = LIMITS, stored: Mapping[str, GroupRecord] | None = None) -> None:
        ids = count(1)
        self.coordinator = GroupCoordinator(lambda: limits, lambda: str(next(ids)))
        self.now = 0.0
        self.answers: dict[int, Any] = {}
        self.stored = dict(stored or {})
        self.holds = False
        self.held: list[SaveGroup] = []
        self._tickets = count(1)
        for group, record in self.stored.items():
            self.coordinator.restore(group, record, self.now)

    def join(self, member: str = "", *, group: str = GROUP, **options: Any) -> int:
        """Send a join; return its ticket."""
        options = {"protocols": RANGE, "session_timeout": 10.0, "rebalance_timeout": 60.0, "client_id": "c"} | options
        ticket = next(self._tickets)
        self.coordinator.join(JoinRequest(group=group, member=member, **options), ticket, self.now)
        self._work()
        return ticket

    def sync(self, member: str, generation: int, assignments: Mapping[str, bytes] | None = None, **options: Any) -> int:
        """Send a sync; return its ticket."""
        ticket = next(self._tickets)
        request = SyncRequest(
            group=GROUP, member=member, generation=generation, assignments=assignments or {}, **options
        )
        self.coordinator.sync(request, ticket, self.now)
        self._work()
        return ticket

    def beat(self, member: str, generation: int, instance: str | None = None) -> KafkaError:
        """Send a heartbeat."""
        request = Membership(group=GROUP, member=member, generation=generation, instance=instance)
        error = self.coordinator.heartbeat(request, self.now)
        self._work()
        return error

    def commit(self, member: str = "", generation: int = -1, *, group: str = GROUP) -> KafkaError:
        """Ask whether offsets may be committed."""
        request = Membership(group=group, member=member, generation=generation)
        error = self.coordinator.check_commit(request, self.now)
        self._work()
        return error

    def leave(self, *members: str | LeavingMember) -> list[KafkaError]:
        """Send a leave."""
        leaving = [LeavingMember(one) if isinstance(one, str) else one for one in members]
        errors = self.coordinator.leave(GROUP, leaving, self.now)
        self._work()
        return errors

    def delete(self, group: str = GROUP) -> int:
        """Send a deletion; return its ticket."""
        ticket = next(self._tickets)
        self.coordinator.delete(group, ticket)
        self._work()
        return ticket

    def pass_(self, seconds: float) -> None:
        """Let time pass, and do what is due at its time."""
        end = self.now + seconds
        while (due := self.coordinator.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.coordinator.fire(self.now)
            self._work()
        self.now = end

    def release(self, ok: bool = True) -> None:
        """Finish the saves that were held."""
        held, self.held = self.held, []
        for save in held:
            self._finish(save, ok)
        self._work()

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self.coordinator.describe(GROUP)[0]

    def error(self, ticket: int) -> KafkaError | None:
        """The error of an answer; None if there is no answer yet."""
        answer = self.answers.get(ticket)
        return answer.error if isinstance(answer, JoinAnswer | SyncAnswer) else answer

    def stable(self, *clients: str, **options: Any) -> dict[str, str]:
        """Bring these clients, all new, into a stable group; return their member ids by client. The first leads."""
        tickets = {client: self.join(client_id=client, **options) for client in clients}
        self.pass_(LIMITS.initial_delay * (len(clients) + 1))
        ids = {client: self.answers[ticket].member for client, ticket in tickets.items()}
        self.settle(*ids.values())
        return ids

    def settle(self, *members: str) -> None:
        """Let all members sync, each with its own id as its assignment."""
        generation = self.coordinator.describe(GROUP)[1].generation
        for member in members:
            self.sync(member, generation, {one: one.encode() for one in members})
        assert self.state is GroupState.STABLE

    def _work(self) -> None:
        events = self.coordinator.events
        while events:
            event = events.popleft()
            if isinstance(event, RequestAnswered):
                assert event.ticket not in self.answers, "a request is answered once"
                self.answers[event.ticket] = event.answer
            elif self.holds:
                self.held.append(event)
            else:
                self._finish(event, True)

    def _finish(self, save: SaveGroup, ok: bool) -> None:
        if ok and save.record is not None:
            self.stored[save.group] = save.record
        elif ok:
            self.stored.pop(save.group, None)
        self.coordinator.saved(save.serial, ok, self.now)
