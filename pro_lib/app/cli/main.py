"""The group `pro` with all of its commands.

A command imports the parts of the package that it needs when it runs, so that `pro --help` is fast.
"""

import click

import pro_lib
from pro_lib.app.cli.ask import ask_command
from pro_lib.app.cli.base import Group
from pro_lib.app.cli.download import download_command, models_command
from pro_lib.app.cli.explore import explore_command
from pro_lib.app.cli.generate import generate_command
from pro_lib.app.cli.judge import judge_command
from pro_lib.app.cli.label import label_command
from pro_lib.app.cli.report import report_command
from pro_lib.app.cli.run import run_command
from pro_lib.app.cli.score import score_command


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Measure how uncertain a language model is about its answers.

    PRO, the main score, is computed from the probabilities of the most likely answers. A higher
    score means more uncertainty.
    """


for _command in (
    ask_command,
    download_command,
    explore_command,
    generate_command,
    judge_command,
    label_command,
    models_command,
    report_command,
    run_command,
    score_command,
):
    pro.add_command(_command)
