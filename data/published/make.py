"""Make records of published outputs of large models: one JSON-lines file for each setting.

    python data/published/make.py [SETTING …] [--folder DIR]

The source is github.com/shuoli90/Rank-Calibration (Huang et al. 2024). Its files contain samples
with their log-probability, their mean log-probability per token and ROUGE-L, the authors' NLI
scores (Deg, Ecc, EigV; Lin et al. 2023), and the confidence that the model stated. They do not
contain texts, splits and endings. The script downloads the files once into original/ and compares
them with the SHA-256 sums in files.csv.
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
    """Return the objects of a published file; [] if files.csv does not list it.

    The file is downloaded if it is not in the folder.

    Raises:
        ValueError: if its SHA-256 is not the one in files.csv.
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
            f"{path} has SHA-256 {digest}; expected {sums[name]}. The file was deleted; "
            "run the script again to download it."
        )
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines()]


def stated(likelihood: dict, confidences: dict | None) -> float | None:
    """Return the mean confidence stated with the most probable answer; None if there is none."""
    nlls = likelihood["unnormalized_nll"]
    values = confidences["verbalized"] if confidences else []
    best = [
        value
        for value, nll in zip(values, nlls, strict=False)
        if nll == min(nlls) and value is not None
    ]
    return sum(best) / len(best) if best else None


def records(setting: str, folder: Path) -> list[dict]:
    """Return the questions of a setting as records, with samples as answers and the scores."""
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
        nlls = entry["unnormalized_nll"]
        per_token = entry["normalized_nll"]
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
    """Write `<setting>.jsonl` next to this script for every requested setting."""
    choices = ", ".join(SETTINGS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", default=SETTINGS, help=f"some of {choices}")
    parser.add_argument(
        "--folder", type=Path, default=HERE / "original", help="where the published files are kept"
    )
    arguments = parser.parse_args()
    for setting in arguments.settings:
        lines = records(setting, arguments.folder)
        if not lines:
            parser.error(f"unknown setting {setting!r}; choose from {choices}")
        path = HERE / f"{setting.removesuffix('_1.0')}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines):,} questions")


if __name__ == "__main__":
    main()
