"""`python -m pro_lib`, the same as `pro`."""

from pro_lib.app.cli import pro

pro(prog_name="pro")
