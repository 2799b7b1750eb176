"""Draw figures anew from their CSV files, and write their captions; no model is asked.

python docs/redraw.py figures/smollm2 figures/gemma-3-270m figures/real_models
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pro_lib import plots
from pro_lib.plots.saving import save_figure

ROOT = Path(__file__).resolve().parents[1]
Drawn = tuple[Figure, str]


class Tables:
    """The tables of a folder, of the reported questions and one protocol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, protocol: str = "paper") -> pd.DataFrame:
        """Return a table as the notebook draws it."""
        table = pd.read_csv(self.folder / f"{name}.csv")
        if "k" in table:
            table = table.astype({"k": "Int64"})
        if "correctness" not in table:  # files of earlier versions, which had one rule
            table = table.assign(correctness="ROUGE-L > 0.3")
        if "split" in table:
            table = table[table["split"] == "test"]
        if "protocol" in table and protocol in set(table["protocol"]):
            table = table[table["protocol"] == protocol]
        if name == "11_answered" and "accuracy_minus_nll" not in table:  # of earlier versions
            keys = ["dataset", "model", "coverage"]
            nll = table[table["method"] == "NLL"].set_index(keys)["accuracy"]
            of_nll = table[keys].join(nll, on=keys)["accuracy"]
            table = table.assign(accuracy_minus_nll=table["accuracy"] - of_nll)
        return table.reset_index(drop=True)


def alone(module: Any, name: str, **options: Any) -> Callable[[Tables], Drawn]:
    """Return the function that draws a figure with one table."""
    protocol = options.pop("protocol", "paper")

    def draw(tables: Tables) -> Drawn:
        table = tables.read(name, protocol)
        drawing = {
            key: value for key, value in options.items() if key in DRAWN_OPTIONS.get(name, ())
        }
        return module.draw(table, **drawing), module.caption(table, **options)

    return draw


def alpha_sweep(tables: Tables) -> Drawn:
    """Draw AUROC against α with the chosen α."""
    table = tables.read("02_alpha_sweep")
    choices = tables.read("02_alpha_choices")
    return plots.alpha_sweep.draw(table, choices), plots.alpha_sweep.caption(table, choices)


def label_answers(tables: Tables) -> Drawn:
    """Draw AUROC by labels, with the names of the labellers in the caption."""
    table = tables.read("10_label_answers", "workbench")
    names = pd.read_csv(tables.folder / "10_labellers.csv")["labeller"].unique()
    return plots.label_answers.draw(table), plots.label_answers.caption(table, list(names))


def beside_paper(tables: Tables) -> Drawn:
    """Draw the table of the benchmark beside the numbers of the paper."""
    table = tables.read("06_benchmark")
    return plots.beside_paper.draw(table), plots.beside_paper.caption(table)


def exact_search(tables: Tables) -> Drawn:
    """Draw what a search finds, with the bounds of the entropy."""
    both = tables.read("07_exact_search"), tables.read("07_bounds")
    return plots.exact_search.draw(*both), plots.exact_search.caption(*both)


def protocols(tables: Tables) -> Drawn:
    """Draw both protocols."""
    table = pd.read_csv(tables.folder / "12_protocols.csv")
    return plots.protocols.draw(table), plots.protocols.caption(table)


# Options that the drawing of a figure takes, besides its caption.
DRAWN_OPTIONS = {"00_explore_examples": ("alpha",)}
FIGURES: dict[str, Callable[[Tables], Drawn]] = {
    "00_explore_examples": alone(plots.examples, "00_explore_examples", alpha=0.4),
    "00_exposure": alone(plots.exposure, "00_exposure"),
    "01_generate": alone(plots.generated_answers, "01_generate", alpha=0.4),
    "02_alpha_sweep": alpha_sweep,
    "03_k_vs_alpha": alone(plots.k_vs_alpha, "03_k_vs_alpha"),
    "04_fixed_k": alone(plots.fixed_k, "04_fixed_k"),
    "05_rouge_threshold": alone(plots.rouge_thresholds, "05_rouge_threshold"),
    "06_benchmark": alone(plots.benchmark, "06_benchmark"),
    "06_beside_paper": beside_paper,
    "07_exact_search": exact_search,
    "07_exact_search_auroc": alone(plots.exact_search_auroc, "07_exact_search_auroc"),
    "08_when_does_pro_help": alone(plots.worlds, "08_when_does_pro_help"),
    "08_spellings": alone(plots.spellings, "08_spellings"),
    "08_causes": alone(plots.causes, "08_causes"),
    "09_guarantees": alone(plots.guarantees, "09_guarantees"),
    "09_sets": alone(plots.answer_sets, "09_sets"),
    "09_entropy": alone(plots.entropies, "09_entropy"),
    "10_label_answers": label_answers,
    "11_answered": alone(plots.answered, "11_answered"),
    "11_reliability": alone(plots.reliability, "11_reliability"),
    "12_protocols": protocols,
}


def redraw(folder: Path) -> Iterator[Path]:
    """Draw the figures whose tables a folder has, and yield the files that were written."""
    tables = Tables(folder)
    for name, draw in FIGURES.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        numbers = path.read_bytes()
        figure, caption = draw(tables)
        table = pd.read_csv(path)
        yield from save_figure(figure, table, name, caption=caption, figures_dir=folder)
        path.write_bytes(numbers)  # the numbers stay as they are


if __name__ == "__main__":
    for written in sys.argv[1:]:
        for file in redraw(ROOT / written):
            print(file.relative_to(ROOT))
