"""`gateway completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_INSTRUCTION = "_GATEWAY_COMPLETE"  # the variable that click itself looks at


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    The script completes commands, options, and the names of the gateway's catalogs and documents.
    For bash: eval "$(gateway completion bash)" in ~/.bashrc. For zsh: the same in ~/.zshrc. For
    fish: gateway completion fish > ~/.config/fish/completions/gateway.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "gateway", _INSTRUCTION).source())
