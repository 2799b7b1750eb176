"""Draw figures anew from their CSV files, and write their captions; no model is asked.

python docs/redraw.py figures/smollm2 figures/gemma-3-270m figures/real_models
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pro_lib import plots
from pro_lib.plots.saving import save_figure

ROOT = Path(__file__).resolve().parents[1]
FIGURES = {
    "00_explore_examples": plots.examples,
    "00_exposure": plots.exposure,
    "01_generate": plots.generated_answers,
    "02_alpha_sweep": plots.alpha_sweep,
    "03_k_vs_alpha": plots.k_vs_alpha,
    "04_fixed_k": plots.fixed_k,
    "05_rouge_threshold": plots.rouge_thresholds,
    "06_benchmark": plots.benchmark,
    "06_beside_paper": plots.beside_paper,
    "07_exact_search": plots.exact_search,
    "07_exact_search_auroc": plots.exact_search_auroc,
    "08_when_does_pro_help": plots.worlds,
    "08_spellings": plots.spellings,
    "08_causes": plots.causes,
    "09_guarantees": plots.guarantees,
    "09_sets": plots.answer_sets,
    "09_entropy": plots.entropies,
    "10_label_answers": plots.label_answers,
    "11_answered": plots.answered,
    "11_reliability": plots.reliability,
    "12_protocols": plots.protocols,
}
# Tables of figures that are not drawn from the one table of their name
TABLES = {
    "02_alpha_sweep": ("02_alpha_sweep", "02_alpha_choices"),
    "06_beside_paper": ("06_benchmark",),
}
AT_ALPHA = {"alpha": 0.4}
DRAWN_OPTIONS = {"00_explore_examples": AT_ALPHA}
CAPTION_OPTIONS = dict.fromkeys(("00_explore_examples", "00_exposure"), AT_ALPHA)


def read(folder: Path, name: str) -> pd.DataFrame:
    """Return a table as the notebook draws it: the reported questions, in one protocol."""
    table = pd.read_csv(folder / f"{name}.csv")
    if "k" in table:
        table = table.astype({"k": "Int64"})
    if "split" in table:
        table = table[table["split"] == "test"]
    protocol = "workbench" if name.startswith("10") else "paper"
    if name != "12_protocols" and "protocol" in table and protocol in set(table["protocol"]):
        table = table[table["protocol"] == protocol]
    return table.reset_index(drop=True)


def redraw(folder: Path) -> Iterator[Path]:
    """Draw the figures whose tables a folder has, and yield the files that were written."""
    for name, module in FIGURES.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        tables = [read(folder, each) for each in TABLES.get(name, [name])]
        captioned = [*tables]
        if name == "10_label_answers":
            captioned.append(pd.read_csv(folder / "10_labellers.csv")["labeller"].unique())
        figure = module.draw(*tables, **DRAWN_OPTIONS.get(name, {}))
        caption = module.caption(*captioned, **CAPTION_OPTIONS.get(name, {}))
        numbers = path.read_bytes()
        stored = pd.read_csv(path)
        yield from save_figure(figure, stored, name, caption=caption, figures_dir=folder)
        path.write_bytes(numbers)  # the numbers stay as they are


if __name__ == "__main__":
    for written in sys.argv[1:]:
        for file in redraw(ROOT / written):
            print(file.relative_to(ROOT))
