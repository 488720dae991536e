"""Replaces the configuration of a running gateway: either all of it, or nothing and an error that says why."""

from penstock.app.reload.changes import changes, check_changes
from penstock.app.reload.reloader import Parts, Reloader
from penstock.app.reload.watching import watch_file

__all__ = ["Parts", "Reloader", "changes", "check_changes", "watch_file"]
