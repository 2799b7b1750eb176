"""The command `pro`. Each module adds the commands of one subject to it.

A command imports the parts of the package that it needs when it runs, so that `pro --help` is fast.
"""

from pro_lib.app.cli import (  # noqa: F401 - they add their commands
    ask,
    download,
    explore,
    generate,
    judge,
    label,
    report,
    run,
    score,
)
from pro_lib.app.cli.base import pro

__all__ = ["pro"]
