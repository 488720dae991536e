"""Another configuration while the gateway runs: all of it at once, or nothing and the reason why."""

from penstock.reload.changes import changes, check_changes
from penstock.reload.reloader import Parts, Reloader
from penstock.reload.watching import watch_file

__all__ = ["Parts", "Reloader", "changes", "check_changes", "watch_file"]
