"""`penstock decode`: the messages in a file, field by field. Each protocol's listing is a module of its own."""

from penstock.cli.decode.command import decode_command

__all__ = ["decode_command"]
