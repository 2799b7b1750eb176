"""Write `invoices.jsonl` and `invoices.csv`, the example of `pro score --fields`.

    python data/examples/make_invoices.py

The invoices are invented. SmolLM2-135M-Instruct reads each one after four examples and writes a
JSON object. The CSV file has the right values; a reason has none.
"""

import csv
import json
from datetime import date, timedelta
from pathlib import Path
from random import Random

import pandas as pd

import pro_lib
from pro_lib.questions.question_sets import QuestionSet

FOLDER = Path(__file__).parent
N_SHOTS = 4
N_INVOICES = 50
DIGITS = 4  # of a log-probability
HEADER = "Write the record of each invoice as JSON.\n\n"
TEMPLATE = "Invoice: {question}\nRecord:"

NAMES = ["Alder", "Brown", "Costa", "Dietrich", "Ekman", "Fontaine", "Grieg", "Hayashi", "Ivanov"]
FORMS = ["Ltd", "GmbH", "& Sons", "Group", "Inc.", "AG"]
ITEMS = {
    "train tickets to Vienna": "travel",
    "two nights at a hotel": "travel",
    "a flight to Oslo": "travel",
    "a rental car for three days": "travel",
    "a licence for photo editing": "software",
    "cloud storage for a year": "software",
    "an accounting program": "software",
    "lunch for twelve guests": "meals",
    "coffee and cakes": "meals",
    "a dinner with customers": "meals",
    "printer paper": "office",
    "six desk lamps": "office",
    "two office chairs": "office",
    "pens and folders": "office",
}
LAYOUTS = [
    "{vendor}, dated {day}. We charge you for {item}. Net {net:.2f}, tax {tax:.2f}, "
    "amount due {total:.2f}.",
    "No. {number} of {day} from {vendor}. {item}: {net:.2f} plus {tax:.2f} tax. "
    "Please pay {total:.2f} by {later}.",
    "Total {total:.2f} ({net:.2f} and 20 % tax) for {item}. Ordered {earlier}, billed {day}. "
    "{vendor}, customer {number}.",
]


def invoices(random: Random) -> list[tuple[str, dict]]:
    """Return the texts of invoices with their right values."""
    results = []
    for n in range(N_SHOTS + N_INVOICES):
        item = random.choice(list(ITEMS))
        day = date(2026, 1, 1) + timedelta(random.randrange(330))
        net = random.randrange(1_000, 90_000) / 100
        tax = round(net * 0.2, 2)
        vendor = f"{random.choice(NAMES)} {random.choice(FORMS)}"
        total = round(net + tax, 2)
        days = {"day": day, "earlier": day - timedelta(9), "later": day + timedelta(30)}
        text = LAYOUTS[n % len(LAYOUTS)].format(
            vendor=vendor,
            item=item,
            net=net,
            tax=tax,
            total=total,
            number=random.randrange(1_000, 10_000),
            **{name: f"{each.day} {each:%B %Y}" for name, each in days.items()},
        )
        record = {
            "vendor": vendor,
            "date": day.isoformat(),
            "total": total,
            "category": ITEMS[item],
            "reason": f"The invoice is for {item}.",
        }
        results.append((text, record))
    return results


def main() -> None:
    """Let the model read the invoices and write both files."""
    texts = invoices(Random(0))
    shots = [(text, json.dumps(record)) for text, record in texts[:N_SHOTS]]
    others = texts[N_SHOTS:]
    ids = [f"invoice-{n:02}" for n in range(1, len(others) + 1)]
    columns = {"question_id": ids, "question": [text for text, _ in others]}
    table = pd.DataFrame(columns).assign(references=None, split=None)
    questions = QuestionSet("invoices", table, tuple(shots), HEADER, TEMPLATE)
    model = pro_lib.load_model("smollm2-135m")
    run = pro_lib.generate(model, questions, strategy="greedy", max_new_tokens=128, chat=False)
    with (FOLDER / "invoices.jsonl").open("w") as file:
        for question, answer in zip(table.itertuples(), run.answers.itertuples(), strict=True):
            answer_record = {
                "text": answer.text,
                "tokens": model.tokenizer.convert_ids_to_tokens(list(answer.token_ids)),
                "token_log_probs": [round(value, DIGITS) for value in answer.token_log_probs],
                "finished": answer.finished,
            }
            row = {"question_id": question.question_id, "question": question.question}
            file.write(json.dumps(row | {"answers": [answer_record]}, ensure_ascii=False) + "\n")
    with (FOLDER / "invoices.csv").open("w", newline="") as file:
        names = ["vendor", "date", "total", "category"]
        writer = csv.DictWriter(file, ["id", *names], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {"id": name} | record for name, (_, record) in zip(ids, others, strict=True)
        )


if __name__ == "__main__":
    main()
