"""A token bucket."""

from __future__ import annotations

__all__ = ["Bucket"]


class Bucket:
    """So many tokens a second, of which some seconds' worth can be saved. Rate and depth come with each call, so that
    they may change at any time."""

    __slots__ = ("_at", "_spent")

    def __init__(self) -> None:
        self._spent = 0.0  # tokens taken and not yet grown again; more than the depth: a debt
        self._at = 0.0

    def take(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """Take tokens if there are any left: 0.0; else after how many seconds there will be."""
        self._grow(rate, now)
        over = self._spent + tokens - max(rate * seconds, tokens)
        if over > 0:
            return over / rate
        self._spent += tokens
        return 0.0

    def spent(self, rate: float, now: float) -> float:
        """Tokens that were taken and have not grown again."""
        self._grow(rate, now)
        return self._spent

    def lacks(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """After how many seconds there will be so many; takes none."""
        self._grow(rate, now)
        return max(0.0, (self._spent + tokens - max(rate * seconds, tokens)) / rate)

    def owe(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """Take tokens, there or not; for how many seconds nothing more is to be taken."""
        self._grow(rate, now)
        self._spent += tokens
        return max(0.0, self._spent / rate - seconds)

    def _grow(self, rate: float, now: float) -> None:
        self._spent = max(0.0, self._spent - (now - self._at) * rate)
        self._at = now
