"""Where label files are stored."""

from __future__ import annotations

from pathlib import Path

from pro_lib.runs.run import Run


def default_label_file(path: str | Path) -> Path:
    """Return the default label file of a run folder or of a file, which is in the same folder."""
    path = Path(path).resolve()
    name = path.name if path.is_dir() else path.stem
    return path.with_name(f"{name}.labels.jsonl")


def label_file(folder: str | Path, run: Run) -> Path:
    """Return the label file of the tab Label, in the folder `labels` of a folder of runs.

    Its name has the number of questions, because a plan is for all answers of a run or of a part.
    It has no spaces, which a shell would divide.

    Args:
        folder: the folder of runs, such as `data/generations`.
        run: the run whose answers are labelled.
    """
    name = f"{run.name}-{len(run.questions)}-questions".replace("/", "-").replace(" ", "_")
    return Path(folder) / "labels" / f"{name}.labels.jsonl"
