"""A first look through a recording: what must be known of it before its first row can be told."""

from __future__ import annotations

from collections.abc import Callable

from penstock_codecs.capture import CaptureEvent, Closed, Conversation, Lost, Noted, Sender
from penstock_spark.capture.files import Place
from penstock_spark.capture.notes import NO_NOTES, Notes
from penstock_spark.capture.reading import Reading

__all__ = ["Survey"]

Key = tuple[str, int]


class Survey:
    """What was noted of each conversation, which ones were open when the new files began, and what is damaged.

    Reading files so takes a tenth of the time that decoding them takes. Memory is some 300 bytes for each conversation
    with notes, and for each that is open.
    """

    def __init__(
        self, wanted: Callable[[Conversation], bool], *, follows: bool = False, skip_unreadable: bool = False
    ) -> None:
        """`wanted`: whose notes are kept. `follows`: which conversations are open is known too."""
        self._wanted = wanted
        self._follows = follows
        self._reading = Reading(skip_unreadable=skip_unreadable)
        self._notes: dict[Key, Notes] = {}
        self._open: dict[Key, set[Sender]] = {}
        """By now, with those of each that have finished."""
        self._open_before: frozenset[Key] | None = None

    @property
    def damage(self) -> str | None:
        """All that is wrong, each with its file."""
        return "; ".join(self._reading.damage) or None

    def notes(self, conversation: Conversation) -> Notes:
        """What was noted of it, in all files that were looked through."""
        return self._notes.get(_key(conversation), NO_NOTES)

    def is_open(self, conversation: Conversation) -> bool:
        """Whether it had not ended with the last file that is not new."""
        key = _key(conversation)
        return key in self._open if self._open_before is None else key in self._open_before

    def forget_ended(self) -> None:
        """What was noted of conversations that have ended is asked for no more."""
        self._notes = {key: notes for key, notes in self._notes.items() if key in self._open}

    def look(self, place: Place, *, new: bool) -> None:
        """Look through the next file. Raises Unreadable as `Reading` does."""
        if new and self._open_before is None:
            self._open_before = frozenset(self._open)
        for events in self._reading.file(place):
            for event in events:
                if type(event) is Noted and self._wanted(event.conversation):
                    self._note(event)
                if self._follows:
                    self._follow(event)

    def _note(self, event: Noted) -> None:
        key = _key(event.conversation)
        notes = self._notes.get(key)
        if notes is None:
            notes = self._notes[key] = Notes()
        notes.add(event.key, event.value)

    def _follow(self, event: CaptureEvent) -> None:
        key = _key(event.conversation)
        if type(event) is Closed:
            closed = self._open.get(key, set())
            closed.add(event.sender)
            if event.reset or len(closed) == len(Sender):
                self._open.pop(key, None)
        elif type(event) is Lost and not event.length:
            self._open.pop(key, None)
        elif key not in self._open:
            self._open[key] = set()


def _key(conversation: Conversation) -> Key:
    return conversation.run, conversation.number
