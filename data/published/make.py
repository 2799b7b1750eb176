"""Make records of outputs of large models that others published: one JSON-lines file a setting, read as `records`.

    python data/published/make.py [SETTING …] [--folder DIR]

The files of github.com/shuoli90/Rank-Calibration (Huang et al. 2024): samples with their log-probability, the same per
token, and ROUGE-L, without texts, splits and endings; NLI scores of the authors (Deg, Ecc, EigV; Lin et al. 2023), and
the confidence that the model stated. They are fetched once, checked by the SHA-256 of files.csv, and kept in original/.
"""

import argparse
import csv
import hashlib
import json
from pathlib import Path
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
URL = "https://raw.githubusercontent.com/shuoli90/Rank-Calibration/f46ae48f/submission/calibration_results/"
SETTINGS = (
    "gpt-3.5-turbo_nq-open_1.0",
    "gpt-3.5-turbo_meadow_1.0",
    "Llama-2-7b-chat-hf_nq-open_1.0",
)
SCORES = {"degree_u": "Deg", "ecc_u": "Ecc", "spectral_u": "EigV"}


def content(name: str, folder: Path) -> list[dict]:
    """Return the objects of a published file, fetched where it is not there yet; [] for one that does not exist.

    Raises `ValueError` if its SHA-256 is not the one in files.csv.
    """
    with open(HERE / "files.csv", encoding="utf-8", newline="") as file:
        sums = {row["file"]: row["sha256"] for row in csv.DictReader(file)}
    if name not in sums:
        return []
    path = folder / name
    if not path.is_file():
        with urlopen(URL + name, timeout=60) as answer:
            data = answer.read()
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sums[name]:
        path.unlink()
        raise ValueError(
            f"{path} has SHA-256 {digest}, not {sums[name]}: it was not kept; fetch it again"
        )
    text = path.read_text(encoding="utf-8")
    return (
        json.loads(text)
        if text.lstrip().startswith("[")
        else [json.loads(line) for line in text.splitlines()]
    )


def stated(likelihood: dict, confidences: dict | None) -> float | None:
    """Return the mean confidence stated with the most probable answer; None where none was."""
    nlls = likelihood["unnormalized_nll"]
    values = confidences["verbalized"] if confidences else []
    best = [
        value
        for value, nll in zip(values, nlls, strict=False)
        if nll == min(nlls) and value is not None
    ]
    return sum(best) / len(best) if best else None


def records(setting: str, folder: Path) -> list[dict]:
    """Return a setting's questions as records, each sample an answer, the authors' scores beside them."""
    model, dataset, temperature = setting.rsplit("_", 2)
    kinds = (
        "none_whitebox",
        "agreement_blackbox",
        "disagreement_blackbox",
        "disagreement_verbalized",
    )
    likelihoods, *rest = (content(f"calibrate_{setting}_{kind}.json", folder) for kind in kinds)
    agreement, disagreement, verbalized = (
        {entry["idx"]: entry for entry in entries} for entries in rest
    )
    rouge = {
        entry["id"]: entry["unnormalized_score"]
        for entry in content(f"{setting}_rouge.json", folder)
    }
    about = {
        "model": model if temperature == "1.0" else f"{model} at {temperature}",
        "dataset": dataset,
    }
    lines = []
    for number, entry in enumerate(likelihoods):
        nlls, per_token = entry["unnormalized_nll"], entry["normalized_nll"]
        rouge_l = rouge.get(number, [None] * len(nlls))
        answers = [
            {"log_prob": min(0.0, -nll), "mean_log_prob": min(0.0, -mean), "rouge_l": score}
            for nll, mean, score in zip(nlls, per_token, rouge_l, strict=True)
        ]
        scores = {}
        for kind, entries in (("agreement", agreement), ("disagreement", disagreement)):
            scores |= {
                f"{method}, NLI {kind}": entries[number][key]
                for key, method in SCORES.items()
                if number in entries
            }
        if verbalized:
            scores["Stated"] = 1 - (stated(entry, verbalized.get(number)) or 0.0)
        lines.append({"question_id": number, **about, "answers": answers, "scores": scores})
    return lines


def main() -> None:
    """Write `<setting>.jsonl` beside this script for every setting asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", default=SETTINGS, help=f"of {', '.join(SETTINGS)}")
    parser.add_argument(
        "--folder", type=Path, default=HERE / "original", help="where the published files are kept"
    )
    arguments = parser.parse_args()
    for setting in arguments.settings:
        lines = records(setting, arguments.folder)
        if not lines:
            parser.error(f"{setting!r} is none of {', '.join(SETTINGS)}")
        path = HERE / f"{setting.removesuffix('_1.0')}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines):,} questions")


if __name__ == "__main__":
    main()
