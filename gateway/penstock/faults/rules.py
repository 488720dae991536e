"""All rules of a gateway, in one object that a reload fills anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from penstock.faults.rule import About, Action, Direction, Fault, Rule

__all__ = ["Faults"]


class Faults:
    """The rules in force. Requests and sessions that begin after a change have the new ones."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._rules = tuple(Rule(fault) for fault in faults)
        self.active = bool(self._rules)
        """Whether there is any rule; what is asked for every operation."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """In the configuration's order."""
        return self._rules

    def put(self, faults: Iterable[Fault]) -> None:
        """Put these in force. A rule that is as it was goes on counting where it stands."""
        known = {rule.fault: rule for rule in self._rules}
        self._rules = tuple(known.get(fault) or Rule(fault) for fault in faults)
        self.active = bool(self._rules)

    def firing(self, about: About, direction: Direction, actions: Collection[Action]) -> Iterator[Rule]:
        """The rules that this message is to have, each asked when its turn comes."""
        for rule in self.concerning(about, direction, actions):
            if rule.fires(about):
                yield rule

    def concerning(self, about: About, direction: Direction, actions: Collection[Action]) -> Iterator[Rule]:
        """The rules whose business such messages are, whether they fire or not."""
        for rule in self._rules:
            fault = rule.fault
            if fault.action in actions and fault.direction is direction and fault.concerns(about):
                yield rule
