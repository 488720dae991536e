"""What a service manager gives a process and wants to be told (sd_listen_fds(3), sd_notify(3)); nothing of it needs
systemd itself."""

from penstock.systemd.activation import activated
from penstock.systemd.notify import Notifier

__all__ = ["Notifier", "activated"]
