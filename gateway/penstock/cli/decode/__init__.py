"""`penstock decode`: the messages in a file, field by field. Each protocol has a module with its listing."""

from penstock.cli.decode.command import decode_command

__all__ = ["decode_command"]
