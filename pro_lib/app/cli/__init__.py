"""The command `pro`. Each module has the commands of one subject, and `main` joins them."""

from pro_lib.app.cli.main import pro

__all__ = ["pro"]
