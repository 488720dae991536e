"""All rules of a gateway, in one object whose contents a reload replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageSubject, Rule

__all__ = ["Faults"]


class Faults:
    """The rules in force. A change applies to requests and sessions that begin after it."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._rules = tuple(Rule(fault) for fault in faults)
        self.active = bool(self._rules)
        """True if there is any rule; read on every operation."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in the configuration's order."""
        return self._rules

    def put(self, faults: Iterable[Fault]) -> None:
        """Replace the rules. A rule whose settings are unchanged keeps its counters."""
        known = {rule.fault: rule for rule in self._rules}
        self._rules = tuple(known.get(fault) or Rule(fault) for fault in faults)
        self.active = bool(self._rules)

    def firing(self, subject: MessageSubject, direction: FaultDirection, actions: Collection[Action]) -> Iterator[Rule]:
        """Yield the rules that fire on this message, evaluating each when it is reached."""
        for rule in self.concerning(subject, direction, actions):
            if rule.fires(subject):
                yield rule

    def concerning(
        self, subject: MessageSubject, direction: FaultDirection, actions: Collection[Action]
    ) -> Iterator[Rule]:
        """Yield the rules that match such messages, whether they fire or not."""
        for rule in self._rules:
            fault = rule.fault
            if fault.action in actions and fault.direction is direction and fault.concerns(subject):
                yield rule
