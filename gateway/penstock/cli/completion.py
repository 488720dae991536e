"""`penstock completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

__all__ = ["completion_command"]

_SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAM: Final = "penstock"


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options and files.

    \b
    bash:  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
    zsh:   penstock completion zsh > DIR/_penstock, where DIR is one of $fpath
    fish:  penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    complete = get_completion_class(shell)
    assert complete is not None
    root = context.find_root().command
    click.echo(complete(root, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source())
