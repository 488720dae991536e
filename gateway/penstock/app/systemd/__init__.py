"""The protocols of a service manager: socket activation (sd_listen_fds(3)) and notification (sd_notify(3)). Neither
needs systemd."""

from penstock.app.systemd.activation import activated
from penstock.app.systemd.notify import Notifier

__all__ = ["Notifier", "activated"]
