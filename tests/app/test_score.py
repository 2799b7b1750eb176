"""The command `pro score`: order, marks, formats, comparison of files, and the choice of α."""

import gzip
import html
import re

import numpy as np
import pandas as pd
import pytest
from commands import json_of, judged, refused, typed

# NLL orders the answers of questions 1, 2 and 0, PE (-p log p of one answer) those of 0, 1 and 2.
ROWS = [judged(0, 0.5), judged(1, 0.125), judged(2, 0.25, 0.05)]


def ids(rows):
    return [row["question_id"] for row in rows]


def test_the_table_has_the_most_uncertain_answers_first_and_files_their_own_order(write):
    records = write(*ROWS)
    *_, first, second, third = typed("score", records)[0].splitlines()
    assert [line.split("?")[0][-1] for line in (first, second, third)] == ["1", "2", "0"]
    *_, first, second, third = typed("score", records, "--sort", "file")[0].splitlines()
    assert [line.split("?")[0][-1] for line in (first, second, third)] == ["0", "1", "2"]
    assert ids(json_of(records)["answers"]) == ["q0", "q1", "q2"]
    assert ids(json_of(records, "--sort", "NLL")["answers"]) == ["q1", "q2", "q0"]
    # PE is 0.347 of p = 1/2, 0.260 of 1/8, and 0.347 + 0.150 of 1/4 and 1/20.
    assert ids(json_of(records, "--sort", "PE")["answers"]) == ["q2", "q0", "q1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "nll"], "--sort 'nll' is not among the methods. Choose from PRO, NLL, "),
        (["--methods", "XX"], "Method 'XX' cannot be computed from these answers. Choose from PRO"),
        (["--output", "scores.xlsx"], "has no known format"),
    ],
)
def test_an_unknown_method_or_format_is_an_error(words, message, write):
    assert message in refused("score", write(*ROWS), *words)


def test_methods_selects_the_columns_and_aurocs(write):
    rows = [judged(n, 0.9 - n / 10, 0.01, correct=n % 2 == 0) for n in range(6)]
    content = json_of(write(*rows), "--methods", "NLL, SE", "--methods", "PE")
    assert [row["method"] for row in content["auroc"]] == ["NLL", "PE", "SE"]
    assert "pro" not in content["answers"][0]


READERS = {
    "csv": pd.read_csv,
    "jsonl": lambda path: pd.read_json(path, lines=True),
    "parquet": pd.read_parquet,
}


@pytest.mark.parametrize("suffix", READERS)
def test_output_has_the_format_of_its_suffix_and_is_replaced_again(suffix, write, tmp_path):
    path = tmp_path / f"scores.{suffix}"
    words = ["score", write(*ROWS), "--output", path]
    for _ in range(2):
        typed(*words)
    table = READERS[suffix](path)
    assert list(table["question_id"]) == ["q0", "q1", "q2"]
    np.testing.assert_allclose(table["nll"], np.log([2, 8, 4]), rtol=1e-9)
    assert not table["mistrust"].any()  # nothing is judged
    for _ in range(2):
        typed(*words, "--answers", "--alpha", "0.04")
    answers = READERS[suffix](path)
    assert list(answers["text"]) == ["0a", "1a", "2a", "2b"]
    np.testing.assert_allclose(answers["probability"], [0.5, 0.125, 0.25, 0.05], rtol=1e-9)
    assert list(answers["rank"]) == [1, 1, 1, 2]
    assert list(answers["kept"]) == [True] * 4
    assert "need --output" in typed(*words[:2], "--answers", code=2)[1]
    typed(*words, "--answers", "--sort", "NLL")
    assert list(READERS[suffix](path)["text"]) == ["1a", "2a", "2b", "0a"]


def test_json_has_null_for_what_is_unknown(write):
    content = json_of(write(*ROWS))
    assert (content["n_questions"], content["n_judged"]) == (3, 0)
    assert (content["accuracy"], content["auroc"]) == (None, None)
    assert content["answers"][0]["correct"] is None
    content = json_of(write(judged(0, 0.5, correct=True), judged(1, 0.25, correct=False)))
    assert (content["n_judged"], content["accuracy"]) == (2, 0.5)
    assert content["auroc"][0]["method"] == "PRO"
    assert content["auroc"][0]["difference_low"] is None


def graded(n_questions, n_wrong):
    """Records of which the last ones are wrong and less probable."""
    return [
        judged(n, 0.9 - 0.8 * n / n_questions, correct=n < n_questions - n_wrong)
        for n in range(n_questions)
    ]


def test_target_marks_the_answers_above_the_threshold_of_the_guarantee(write):
    records = write(*graded(200, 100))
    content = json_of(records, "--target", 0.9)
    assert content["mistrust"]["sentence"].startswith("By PRO: Answer when the score is below ")
    is_marked = [row["mistrust"] for row in content["answers"]]
    n_trusted = is_marked.index(True)
    assert all(is_marked[n_trusted:])
    # The largest threshold that an exact test at 5 % / 5 starts can reject is a little above 100.
    assert 95 <= n_trusted <= 110
    for rows, words in (
        (graded(10, 5), "Nothing can be guaranteed: 10 judged questions do not show"),
        (ROWS, "No accuracy can be guaranteed without judged answers."),
    ):
        assert words in typed("score", write(*rows), "--target", 0.9)[0]
    rare = [row | {"scores": {"X": n} if n % 2 else {}} for n, row in enumerate(graded(200, 100))]
    words = "because too many questions have no X"
    assert words in typed("score", write(*rare), "--sort", "X", "--target", 0.9)[0]
    assert typed("score", records, "--target", 1.5, code=2)


def test_auto_chooses_alpha_on_one_half_and_reports_the_other(write):
    # A second answer of p = 0.2 goes with wrong answers.
    rng = np.random.default_rng(0)
    rows = []
    for n in range(600):
        is_right = bool(rng.random() < 0.5)
        rows.append(judged(n, rng.uniform(0.3, 0.7), 0.01 if is_right else 0.2, correct=is_right))
    records = write(*rows)
    out, _ = typed("score", records, "--methods", "PRO,NLL")
    words = r"α = 0.2, chosen on (\d+) questions; the results below are of the other (\d+)\."
    [[n_chosen, n_reported]] = re.findall(words, out)
    assert int(n_chosen) + int(n_reported) == 600
    assert re.search(rf" 100% +{n_reported} questions ", out)
    content = json_of(records, "--target", 0.7)
    assert (content["n_judged"], content["n_reported"]) == (600, int(n_reported))
    assert content["most_certain"][-1]["n_answered"] == int(n_reported)
    assert content["alpha"]["value"] == 0.2
    assert content["mistrust"]["sentence"].startswith("By PRO: Answer when the score is below ")
    assert json_of(records, "--alpha", 0.4)["n_reported"] == 600


@pytest.mark.parametrize(
    ("first", "options", "words"),
    [
        (0, [], "With --alpha 0.3, PRO keeps two or more answers of 6 of 11 questions."),
        (0, ["--alpha", 0.35], "With --alpha 0.3, PRO keeps two or more answers of 6 of 11"),
        (1, [], "With --alpha 0.1, PRO"),
        (0, ["--alpha", 0.6], "so it equals NLL"),
        (0, ["--alpha", 0.3], None),
        (0, ["--methods", "S-PRO"], "α = 0.4, the default: 11 judged questions"),
        (0, ["--methods", "NLL"], None),
    ],
)
def test_a_fixed_alpha_comes_with_one_that_keeps_two_answers_of_most(first, options, words, write):
    rows = [judged(n, 0.5, 0.3 if n < 6 else 0.1, correct=n % 2 > 0) for n in range(first, 11)]
    out, _ = typed("score", write(*rows), *options)
    assert "With --alpha" not in out if words is None else words in out


def test_the_auroc_of_a_method_of_the_example_does_not_depend_on_the_others():
    example = json_of("--example")
    assert (example["n_judged"], example["n_reported"]) == (788, 523)
    all_aurocs = {row["method"]: row["auroc"] for row in example["auroc"]}
    for names in (["PRO"], ["S-PRO", "SE"], ["NLL", "PE"]):
        content = json_of("--example", "--methods", ",".join(names))
        assert content["alpha"] == example["alpha"]
        aurocs = {row["method"]: row["auroc"] for row in content["auroc"]}
        assert aurocs == pytest.approx({name: all_aurocs[name] for name in names}, abs=1e-12)


def test_two_files_are_compared_on_the_questions_they_share(write):
    first, second = (
        write(*[judged(n, 0.9 - n / 50, correct=n % k > 0) for n in numbers], name=f"{k}.jsonl")
        for k, numbers in ((3, range(30)), (2, range(10, 40)))
    )
    lines = typed("score", first, second)[0].splitlines()
    counts = "20 judged questions are in both. Right means: ROUGE-L > 0.3."
    assert lines[:3] == [f"A: {first}", f"B: {second}", counts]
    # Of 10 to 29: 14 are not divisible by 3, 10 are odd; 7 are right in A alone and 3 in B alone.
    # The interval has 8 / 22 and 4 / 22 in place of 7 / 20 and 3 / 20. The p-value is
    # twice the share of 1 + 10 + 45 + 120 in 1024.
    assert lines[3] == (
        "Accuracy: A 70.0%, B 50.0%. B minus A −20.0 points [−48.1, +11.7], p = 0.34 (McNemar's "
        "exact test). 7 questions are right only in A and 3 only in B."
    )
    content = json_of(first, second)
    assert (content["only_first"], content["only_second"]) == (7, 3)
    assert {row["method"] for row in content["auroc"]} == {"PRO", "NLL"}
    assert "needs one file" in typed("score", first, second, "--sort", "NLL", code=2)[1]
    assert "or two" in typed("score", first, second, first, code=2)[1]
    other = write(judged(50, 0.5, correct=True), judged(51, 0.5, correct=False))
    assert "share no judged question" in refused("score", first, other)


def test_two_files_without_a_common_method_are_compared_by_accuracy(write):
    rows = [judged(number, 0.5, correct=number < 2) for number in range(4)]
    texts = [row | {"answers": 2 * [{"text": row["answers"][0]["text"]}]} for row in rows]
    out, _ = typed("score", write(*rows), write(*texts, name="texts.jsonl"))
    assert out.splitlines()[4].endswith("because no method scores the answers of both files.")


def test_a_file_on_standard_input_is_scored_and_the_number_of_rows_is_chosen(write):
    records = write(*ROWS)
    piped, _ = typed("score", "-", "--top", 2, stdin=records.read_bytes())
    assert piped == typed("score", records, "--top", 2)[0]
    assert piped.endswith("… and 1 more; --output scores.csv writes all\n")
    packed, _ = typed("score", "-", "--top", 2, stdin=gzip.compress(records.read_bytes()))
    assert packed == piped
    table = "question,text,log_prob\nWhere?,Paris,-0.1\n"
    assert "1 questions, 1 answers" in typed("score", "-", stdin=table)[0]
    assert typed("score", "-", stdin="{}", code=1)[1].startswith("Error: standard input contains")


def test_the_rule_of_right_answers_is_named_everywhere(write, tmp_path):
    rows = graded(60, 40)
    records = write(*rows)
    cells = [f"q{n},{row['answers'][0]['text']},{n % 2}" for n, row in enumerate(rows)]
    verdicts = write("question_id,text,correct", *cells, name="by_hand.csv")
    for options, rule in (
        ((), "ROUGE-L > 0.3"),
        (("--correctness", "exact_match"), "exact match"),
        (("--labels", verdicts), "by_hand.csv"),
    ):
        out, _ = typed("score", records, *options)
        assert f"Right means: {rule}." in out
        assert json_of(records, *options)["rule"] == rule
        page = tmp_path / "page.html"
        typed("report", records, *options, "--output", page)
        assert f"Right means: {html.escape(rule)}." in page.read_text()


# The total is right if it is certain. Of the names, three are wrong, and one is nearly right.
NAMES = {4: "Bell Inc", 5: "Acme", 6: "Acme", 7: "Acme"}


def invoice(n):
    """A response with two fields; the later ones are less certain."""
    tokens = ['{"name": "', NAMES.get(n, "Bell"), '", "total": ', "7" if n < 12 else "8", "}"]
    answer = {"text": "".join(tokens), "tokens": tokens, "token_log_probs": [0, -n, -1, -n / 4, 0]}
    return {"question_id": f"inv-{n}", "question": f"Read {n}.", "answers": [answer]}


@pytest.fixture
def invoices(write):
    """The options that score the fields of 20 responses with a table of right values."""
    right = [f"inv-{n},Bell,7.0" for n in range(20)]
    path = write("id,name,total", *right, name="right.csv")
    return [write(*map(invoice, range(20))), "--questions", path, "--fields"]


def test_fields_are_scored_and_summarized_one_by_one(invoices, tmp_path):
    content = json_of(*invoices, "--target", "0.5")
    assert content["rule"] == "equal values"
    assert (content["n_questions"], content["accuracy"]) == (40, 28 / 40)
    rows = {row["question_id"]: row for row in content["answers"]}
    assert rows["inv-12/total"]["field"] == "total"
    # The token with the name also has its closing quote, whose log-probability is -1.
    assert (rows["inv-12/total"]["nll"], rows["inv-12/name"]["nll"]) == (3, 13)
    name, total = content["fields"]
    assert (name["field"], name["n_judged"], name["accuracy"]) == ("name", 20, 16 / 20)
    assert (total["field"], total["n_judged"], total["accuracy"]) == ("total", 20, 12 / 20)
    # Wrong names are at places 4 to 7 of 0 to 19; the totals are ordered perfectly.
    assert (name["auroc"], total["auroc"]) == (4 / 16, 1)
    assert name["auroc_high"] < 1
    assert name["n_mistrusted"] + total["n_mistrusted"] == sum(
        row["mistrust"] for row in content["answers"]
    )
    # The tests start at 10 and 14 of 20 totals, with the level .01 each. The probability of 12
    # right totals is .018 if there are 15, and .038 if there are 16.
    assert (total["threshold"], total["n_trusted"]) == (15 / 4, 15)
    assert (name["threshold"], name["n_trusted"]) == (None, 0)
    output, _ = typed("score", *invoices, "--top", "40")
    assert re.search(r"field +n_judged +accuracy .*\n +name +20 +0.8000 +0.2500 ", output)
    typed("score", *invoices, "--output", tmp_path / "scores.csv")
    assert list(pd.read_csv(tmp_path / "scores.csv")["field"][:2]) == ["name", "total"]
    assert re.search(r"inv-12/total total +8 +no +3.0000", output)


def test_each_field_can_have_a_rule_of_its_own(invoices, tmp_path):
    content = json_of(*invoices, "--correctness", "name=alias_match")
    assert content["rule"] == "equal values, alias match for name"
    assert content["fields"][0]["accuracy"] == 17 / 20
    assert "--fields compares values" in refused("score", *invoices, "--correctness", "log:acc")
    content = json_of(*invoices, "--correctness", "rouge_l,total=exact_match")
    assert content["rule"] == "ROUGE-L > 0.3, exact match for total"
    # An exact match drops the point of 7.0.
    assert [row["accuracy"] for row in content["fields"]] == [17 / 20, 0]
    misspelt = refused("score", *invoices, "--correctness", "nmae=rouge_l")
    assert "no field has this name, only name, total" in misspelt
    unknown = "is unknown. Choose rouge_l, exact_match"
    assert unknown in refused("score", *invoices, "--correctness", "name=rouge")
    assert unknown in refused("score", *invoices[:-1], "--correctness", "name=rouge_l")
    of_folder = refused("score", tmp_path, "--fields")  # which has no tokens of fields
    assert "--fields needs a file of responses" in of_folder
