"""Measure scores of single fields: records of countries, written as JSON by a model.

    python benchmarks/fields.py --model smollm2-135m

The model writes the capital, the currency, the internet domain and the calling code of each country
as one JSON object, after six examples. Each field of the answer is then searched exactly from the
text before it. A row of `docs/results/data/fields.csv` is a score on a field, or on all of them.
The runs are kept, so that an interrupted run continues.
"""

import json
from pathlib import Path

import pandas as pd
from measuring import parse_arguments

import pro_lib
from pro_lib import metrics, scoring
from pro_lib.common.catalog import DATA, HOME
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.importing.fields import scalars_in
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.questions.repeats import hash_order
from pro_lib.runs.run import Run

RELATIONS = {
    "capital": "country_capital",
    "currency": "country_currency",
    "domain": "country_internet_domain",
    "calling_code": "country_calling_code",
}
N_SHOTS = 6
HEADER = "Facts about countries as JSON.\n\n"
ALPHA = 0.1
# The ends of a text and of a number.
STOP = {True: ['",', '"}'], False: [",", "}"]}
SCORES = {"field_nll": "NLL of the field", "field_pro": "PRO of the field"}
REFERENCE = "NLL of the answer"


def countries() -> pd.DataFrame:
    """Return the accepted values of the fields of each country, a row per country."""
    facts = pd.read_json(DATA / "world_facts" / "facts.jsonl", lines=True)
    facts["accepted"] = [[row.answer, *row.aliases] for row in facts.itertuples()]
    facts = facts.set_index("subject")
    columns = {
        name: facts.loc[facts["relation"] == relation, "accepted"]
        for name, relation in RELATIONS.items()
    }
    wide = pd.DataFrame(columns).dropna().rename_axis("subject").reset_index()
    order = hash_order(wide.rename(columns={"subject": "question_id"}))
    return wide.iloc[order].reset_index(drop=True)


def prompt(country: str) -> str:
    """Return the beginning of the record of a country."""
    return f"Country: {country}\n"


def record(country: pd.Series) -> str:
    """Return the JSON object of a country."""
    values = {name: country[name][0] for name in RELATIONS}
    return json.dumps(values | {"calling_code": int(values["calling_code"])})


def question_set(name: str, texts: dict[str, str], shots: pd.DataFrame) -> QuestionSet:
    """Return beginnings of records, by their ids, as questions after the examples."""
    columns = {"question_id": [*texts], "question": [*texts.values()]}
    table = pd.DataFrame(columns).assign(references=None, split=None)
    examples = [f"{prompt(row['subject'])}{record(row)}\n\n" for _, row in shots.iterrows()]
    return QuestionSet(name, table, header=HEADER + "".join(examples), template="{question}")


def greedy_records(model, run: Run, table: pd.DataFrame) -> list[dict]:
    """Return the answers of a run as records with their tokens and the right values."""
    accepted = table.set_index("subject")
    records = []
    for answer in run.answers.itertuples():
        row = accepted.loc[answer.question_id]
        tokens = model.tokenizer.convert_ids_to_tokens(list(answer.token_ids))
        references = [{name: value} for name in RELATIONS for value in row[name]]
        values = {"token_log_probs": answer.token_log_probs, "finished": answer.finished}
        records.append(
            {
                "question_id": answer.question_id,
                "references": references,
                "answers": [{"text": answer.text, "tokens": tokens, **values}],
            }
        )
    return records


def searches(model, run: Run, shots: pd.DataFrame, ids: set[str], options: dict) -> pd.DataFrame:
    """Return the exact search of each field: its status, its PRO and its values with p ≥ α."""
    beginnings: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for answer in run.answers.itertuples():
        country = answer.question_id
        for path, scalar in scalars_in(answer.text).items() if answer.finished else ():
            name = f"{country}/{path}"
            is_text = answer.text[scalar.start - 1] == '"'
            before = answer.text[: scalar.start].rstrip(' "')
            if name in ids:
                beginnings[is_text][name] = prompt(country) + before
    tables = []
    for is_text, texts in beginnings.items():
        questions = question_set(f"fields of {'texts' if is_text else 'numbers'}", texts, shots)
        search = {"strategy": "threshold", "search_alpha": ALPHA, "max_new_tokens": 24}
        run_of_fields = pro_lib.generate(model, questions, stop=STOP[is_text], **search, **options)
        table = run_of_fields.questions[["question_id", "status"]]
        table["field_pro"] = scoring.pro(run_of_fields.log_probs(), alpha=ALPHA, search_alpha=ALPHA)
        values = run_of_fields.answers
        values = values.assign(text=values["text"].str.strip('"'))
        groups = values[values["finished"]].groupby("question_id")
        table["values"] = table["question_id"].map(groups["text"].apply(list))
        tables.append(table)
    return pd.concat(tables)


def measured(name: str, out: Path, limit: int | None) -> pd.DataFrame:
    """Return a row for each field of each country."""
    model = pro_lib.load_model(name)
    table = countries()
    shots = table[:N_SHOTS]
    others = table[N_SHOTS:][:limit]
    options = {"chat": False, "out": out}
    questions = question_set("countries", {name: prompt(name) for name in others["subject"]}, shots)
    run = pro_lib.generate(model, questions, strategy="greedy", max_new_tokens=64, **options)
    fields = pro_lib.import_answers(greedy_records(model, run, others), fields=True)
    rows = fields.top().merge(fields.questions[["question_id", "field", "question", "references"]])
    rows = rows.dropna(subset=["references", "value"]).rename(columns={"question": "country"})
    rows["correct"] = metrics.value_match(rows["text"].tolist(), rows["references"].tolist())
    rows["field_nll"] = -rows["value"]
    whole = run.answers.set_index("question_id")["log_prob"]
    rows[REFERENCE] = -rows["country"].map(whole)
    rows = rows.merge(searches(model, run, shots, {*rows["question_id"]}, options))
    rows["is_listed"] = [
        any(metrics.value_match(values, [references] * len(values)))
        for values, references in zip(rows["values"], rows["references"], strict=True)
    ]
    return rows.rename(columns=SCORES)


def summary(rows: pd.DataFrame, field: str) -> pd.DataFrame:
    """Return the AUROC of each score on some fields and its difference to the whole answer."""
    countries = None if rows["country"].is_unique else rows["country"].to_numpy()
    verdicts = Verdicts(rows["correct"].to_numpy(bool), "equal values", countries)
    scores = rows[[*SCORES.values(), REFERENCE]]
    table = pd.DataFrame({"method": scores.columns})
    if not verdicts.problem:  # all answers right, or all wrong
        table = verdicts.compare(scores, reference=REFERENCE)
    wrong = rows[~rows["correct"]]
    counts = {
        "field": field,
        "n_fields": len(rows),
        "n_countries": rows["country"].nunique(),
        "accuracy": rows["correct"].mean(),
        "certified": (rows["status"] == "certified").mean(),
        "fallback": (rows["status"] == "fallback").mean(),
        "n_values": rows["values"].map(len).mean(),
        "several_values": (rows["values"].map(len) > 1).mean(),
        "n_wrong": len(wrong),
        "wrong_with_right_value": wrong["is_listed"].mean(),
    }
    columns = ["method", "auroc", "auroc_low", "auroc_high"]
    columns += ["difference", "difference_low", "difference_high"]
    return table.reindex(columns=columns).assign(**counts)


def main() -> None:
    """Measure a model and write its rows."""
    defaults = {
        "--model": "smollm2-135m",
        "--limit": int,  # number of countries
        "--runs": HOME / "data" / "generations" / "fields",
        "--out": HOME / "docs/results/data/fields.csv",
    }
    options = parse_arguments(__doc__, defaults)
    rows = measured(options.model, options.runs, options.limit)
    tables = [summary(group, name) for name, group in rows.groupby("field", sort=False)]
    table = pd.concat([summary(rows, "all"), *tables])
    table.insert(0, "model", options.model)
    if options.out.exists():
        others = pd.read_csv(options.out)
        table = pd.concat([others[others["model"] != options.model], table])
    table.to_csv(options.out, index=False, float_format="%.6g")
    print(table.to_string())


if __name__ == "__main__":
    main()
