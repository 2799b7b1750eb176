"""Generate runs: stored, continued, refused, halved for memory, by workers and in chats."""

import copy
import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_series_equal
from test_strategies import plain_log_probs

from pro_lib import generate, read_run
from pro_lib.common.files import RunError
from pro_lib.generation import batching
from pro_lib.generation.models import UnsupportedModelError
from pro_lib.questions.question_sets import QuestionSet

module = import_module("pro_lib.generation.run_generation")

# Greedy and threshold have no number of answers
ONE = {"max_new_tokens": 6, "batch_size": 2}
OPTIONS = ONE | {"n_answers": 3}


@pytest.fixture
def model(ending_model):
    return ending_model("llama")


def asked(n, start=0):
    numbers = range(start, start + n)
    table = {
        "question_id": [f"q{i}" for i in numbers],
        "question": [f"Who wrote book {i}?" for i in numbers],
    }
    return QuestionSet("toy", pd.DataFrame({**table, "references": [["x"]] * n, "split": "test"}))


def folder_in(out, strategy):
    """The folder of the only run with this strategy, whatever its settings."""
    [folder] = (out / "toy" / "llama").glob(f"{strategy}*")
    return folder


def tables(run):
    answers = run.answers.map(
        lambda v: v.tolist() if isinstance(v, np.ndarray) else None if v != v else v
    )
    return answers.to_dict("list"), run.questions.to_dict("list")


@pytest.mark.parametrize("strategy", ["greedy", "multinomial", "diverse_beam"])
def test_a_run_on_disk_is_the_run_in_memory(model, tmp_path, strategy):
    options = ONE if strategy == "greedy" else OPTIONS
    in_memory = generate(model, asked(5), strategy=strategy, **options)
    on_disk = generate(model, asked(5), strategy=strategy, out=tmp_path, **options)
    stored = read_run(folder_in(tmp_path, strategy))
    assert tables(in_memory) == tables(on_disk) == tables(stored)
    assert in_memory.info.cost.token_forwards == stored.info.cost.token_forwards > 0
    assert stored.info.parameters["strategy"] == strategy
    assert {"torch", "transformers"} <= set(stored.info.provenance["versions"])


def test_new_questions_join_a_run_and_old_ones_are_not_asked_again(model, tmp_path, monkeypatch):
    few = generate(model, asked(3), out=tmp_path, **OPTIONS)
    more = generate(model, asked(6), out=tmp_path, **OPTIONS)
    assert list(more.questions["question_id"]) == [f"q{i}" for i in range(6)]
    assert tables(more.select(question_ids=["q0", "q1", "q2"])) == tables(few)
    monkeypatch.setattr(
        "pro_lib.generation.decoding.compatibility.PackedTree",
        lambda *_: pytest.fail("the model was called"),
    )
    assert tables(generate(model, asked(3), out=tmp_path, **OPTIONS)) == tables(few)
    stored = read_run(folder_in(tmp_path, "diverse_beam"), all_questions=True)
    assert len(stored.questions) == 6


def test_a_run_is_not_continued_with_other_parameters(model, tmp_path):
    model = with_template(model, CHAT)
    folder = tmp_path / "toy" / "llama"
    options = OPTIONS | {"chat": False}
    usual = "diverse_beam,max_new_tokens=6,n_answers=3"
    first = generate(model, asked(3), out=tmp_path, **options)
    for other in (
        {"n_answers": 4},
        {"diversity_penalty": 0.5},
        {"max_new_tokens": 32},
        {"chat": True},
    ):
        generate(model, asked(2), out=tmp_path, **options | other)
    names = {usual, f"{usual},diversity_penalty=0.5", f"{usual},chat=true", usual.replace("3", "4")}
    assert {path.name for path in folder.iterdir()} == names | {"diverse_beam,n_answers=3"}
    assert tables(read_run(folder / usual)) == tables(first)


def test_a_run_of_other_weights_prompts_or_templates_is_not_continued(model, tmp_path):
    generate(model, asked(3), out=tmp_path, **OPTIONS)
    with pytest.raises(RunError, match=r"than requested: fingerprint='.*', now fingerprint='0000'"):
        generate(replace(model, fingerprint="0000"), asked(5), out=tmp_path, **OPTIONS)
    with pytest.raises(RunError, match=r"requested: shots\.0=None, now shots\.0=\['Who\?'"):
        generate(model, replace(asked(3), shots=(("Who?", "Me"),)), out=tmp_path, **OPTIONS)
    options = OPTIONS | {"chat": True, "out": tmp_path / "chat"}
    for n in (2, 3):
        generate(with_template(model, CHAT), asked(n), **options)
    with pytest.raises(RunError, match="than requested: chat_prompt='"):
        generate(with_template(model, "Tuesday." + CHAT), asked(4), **options)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"batch_size": 0}, "batch_size=0 "),
        ({"engine": "slurm"}, "engine='slurm' "),
        ({"engine": "ray", "out": None}, "engine='ray' needs out=, a folder"),
    ],
)
def test_a_setting_out_of_range_is_named_and_nothing_is_written(model, tmp_path, option, words):
    with pytest.raises(ValueError, match=words):
        generate(model, asked(2), **OPTIONS | {"out": tmp_path / "out"} | option)
    assert not (tmp_path / "out").exists()


def cuda_is_full():
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of 80 GiB."
    )


def host_is_full():
    """Raise the error of the CPU's allocator, by a request for more than any machine has."""
    torch.empty(2**60, dtype=torch.uint8)


def small_memory(monkeypatch, is_too_much, full):
    """Let some batches run out of memory; return the sizes of all batches."""
    sizes = []
    tree_of = batching.Job._tree

    def tree(job, prompts):
        sizes.append(len(prompts))
        return full() if is_too_much(prompts) else tree_of(job, prompts)

    monkeypatch.setattr(batching.Job, "_tree", tree)
    return sizes


def assert_runs_agree(run, other, longest=ONE["max_new_tokens"]):
    """Check for equal answers and certificates; log-probabilities and masses agree to 1e-5.

    The upper bound is a mass times T log V.
    """
    for ours, theirs in ((run.answers, other.answers), (run.questions, other.questions)):
        per_mass = {"upper_bound": longest * math.log(300)}
        for (column, one), (named, two) in zip(ours.items(), theirs.items(), strict=True):
            assert column == named
            assert_series_equal(one, two, rtol=0, atol=1e-5 * per_mass.get(column, 1))


@pytest.mark.parametrize(
    ("strategy", "full"),
    [("multinomial", cuda_is_full), ("diverse_beam", cuda_is_full), ("threshold", host_is_full)],
)
def test_a_pack_without_memory_is_halved_and_the_run_agrees(model, monkeypatch, strategy, full):
    options = ONE | {"batch_size": 8, "strategy": strategy}
    enough = generate(model, asked(11), **options)
    assert enough.info.cost.halved_packs == 0
    sizes = small_memory(monkeypatch, lambda prompts: len(prompts) > 3, full)
    with pytest.warns(RuntimeWarning) as warned:
        run = generate(model, asked(11), **options)
    # 8 and 4 are too many; the size that fits stays for the rest of this batch and for the next.
    assert sizes == [8, 4, 2, 2, 2, 2, 2, 1]
    words = "{} questions at once do not fit into the memory of cpu; going on with {}"
    assert [str(w.message) for w in warned] == [words.format(8, 4), words.format(4, 2)]
    assert run.info.cost.halved_packs == 2
    assert_runs_agree(run, enough)


def test_a_question_that_does_not_fit_alone_is_named_and_the_parts_before_it_stay(
    model, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "QUESTIONS_PER_PART", 2)
    options = ONE | {"strategy": "greedy"}
    enough = generate(model, asked(4), **options)
    [large] = map(model.encode, asked(1, start=2).prompts())
    words = r"^question 'q2' does not fit into the memory of cpu even alone; take fewer shots"
    with monkeypatch.context() as patch:
        small_memory(patch, lambda prompts: large in prompts, cuda_is_full)
        with (
            pytest.raises(MemoryError, match=words),
            pytest.warns(RuntimeWarning, match="going on with 1"),
        ):
            generate(model, asked(4), out=tmp_path, **options)
    with pytest.warns(UserWarning, match="holds 2 of the 4 questions planned"):
        rest = read_run(folder_in(tmp_path, "greedy"))
    assert tables(rest) == tables(enough.select(question_ids=["q0", "q1"]))
    assert tables(generate(model, asked(4), out=tmp_path, **options)) == tables(enough)


def test_another_error_of_the_network_is_no_lack_of_memory(model, monkeypatch):
    monkeypatch.setattr(batching.Job, "_tree", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        generate(model, asked(2), **OPTIONS)


def test_a_model_is_asked_by_its_name_and_questions_are_texts_or_rows(model, monkeypatch):
    monkeypatch.setattr(module.models, "cached_model", {"mine": model, model: model}.get)
    expected = generate(model, asked(2), **OPTIONS)
    texts = asked(2).table["question"].tolist()
    rows = [{"question": text, "references": ("x", "y")} for text in texts]
    for questions in (texts, rows, pd.DataFrame(rows)):
        run = generate("mine", questions, **OPTIONS)
        assert run.name == f"asked/{model.name}/{run.info.strategy}"
        assert run.answers["text"].tolist() == expected.answers["text"].tolist()
    assert run.questions["references"].tolist() == [["x", "y"]] * 2


@pytest.mark.parametrize("strategy", ["diverse_beam", "multinomial"])
def test_ranks_go_down_in_probability_but_samples_keep_their_order(model, strategy):
    answers = generate(model, asked(6), strategy=strategy, **OPTIONS | {"n_answers": 8}).answers
    totals = (answers["log_prob"] + answers["end_log_prob"].fillna(0.0))[answers["finished"]]
    by_question = totals.groupby(answers["question_id"])
    assert by_question.agg(lambda values: values.is_monotonic_decreasing).all() == (
        strategy == "diverse_beam"
    )
    assert list(answers["rank"]) == list(range(8)) * 6


CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}[answer]"
SHOUTING = CHAT + "{% if shout is defined and shout %}!{% endif %}"
DATED = "Today is {{ strftime_now('%d %b %Y') }}." + SHOUTING
DATES = (
    "{{ strftime_now(\n format='%d %b %Y') }}",
    "{% macro day(now) %}{{ now('%d %b %Y') }}{% endmacro %}{{ day(strftime_now) }}",
)
# It loops over the parts of a message, of which a text has none.
DROPPING = CHAT.replace("m.content", "m.content[0].text")
THINKING = CHAT + "{% if enable_thinking is not defined or enable_thinking %}<think>\n"
THINKING += "{% else %}<think></think>{% endif %}"


def with_template(model, template):
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = template
    return replace(model, tokenizer=tokenizer)


def test_a_chat_is_put_in_the_models_template_with_the_shots_as_turns(model):
    shots = (("Who wrote Emma?", "Jane Austen"),)
    questions = replace(asked(3), header="Be brief. ", shots=shots, template="{question}")
    chatting = with_template(model, CHAT)
    text = (
        "[user]Be brief. Who wrote Emma?\n[assistant]Jane Austen\n[user]Who wrote book 0?\n[answer]"
    )
    prompts = [chatting.encode_chat(messages, {}) for messages in questions.chats()]
    assert chatting.tokenizer.decode(prompts[0]) == text
    run = generate(chatting, questions, strategy="greedy", max_new_tokens=6, chat=True)
    assert run.info.parameters["chat"] is True
    for prompt, row in zip(prompts, run.answers.itertuples(), strict=True):
        tokens, ending = plain_log_probs(model, tuple(prompt), tuple(row.token_ids))
        np.testing.assert_allclose(row.token_log_probs, tokens, atol=1e-4)
        assert not row.finished or row.end_log_prob == pytest.approx(ending, abs=1e-4)
    # The shots went through the model once: the cost is less than that of three whole prompts.
    assert run.info.cost.prompt_tokens < sum(map(len, prompts)) - len(prompts[0])


@pytest.mark.parametrize("now", DATES)
def test_a_template_that_asks_for_the_date_gets_that_of_the_run_and_not_of_the_day(
    model, tmp_path, now
):
    dated = with_template(model, f"Today is {now}.{SHOUTING}")
    conversation = [{"role": "user", "content": "Who?"}]
    today = "Today is {}.[user]Who?\n[answer]{}"
    options = {"date": "2031-01-02", "shout": True}
    assert model.tokenizer.decode(dated.encode_chat(conversation, {})) == today.format(
        "26 Jul 2024", ""
    )
    assert model.tokenizer.decode(dated.encode_chat(conversation, options)) == today.format(
        "02 Jan 2031", "!"
    )
    first = generate(dated, asked(2), chat=options, out=tmp_path, **OPTIONS)
    assert first.info.parameters["chat"] == options
    assert tables(generate(dated, asked(2), chat=options, out=tmp_path, **OPTIONS)) == tables(first)


@pytest.mark.parametrize(
    ("template", "chat", "words"),
    [
        (DATED, "yes", "chat='yes' "),
        (DATED, {"shuot": True}, "cannot be used .it has no option 'shuot'.; use chat=False"),
        (DATED, {"date": "yesterday"}, "Invalid isoformat string: 'yesterday'"),
        (DROPPING, True, "model llama drops the question: two different questions have"),
        ("{{ raise_exception('') }}", True, "used .TemplateError, an error without a mess"),
        (None, True, "llama has no chat template; leave chat=True"),
        ("{{ 1 // 0 }}", True, r"cannot be used \(.*by zero"),
        ("{{ " + "+".join(["'a'"] * 20_000) + " }}", True, "recursion"),
        (THINKING, True, r"it opens a thinking block; an option may close it: chat=\{'ena"),
    ],
    ids=range(9),
)
def test_a_chat_that_the_template_does_not_take_says_why(model, template, chat, words):
    with pytest.raises(ValueError, match=words):
        generate(with_template(model, template), asked(1), chat=chat)


def test_an_answer_that_is_a_thought_is_an_error_unless_a_likelier_one_is_none(model, monkeypatch):
    last = generate(model, asked(1), **OPTIONS).answers["token_ids"].iloc[-1].tolist()
    thinking = with_template(model, THINKING)
    monkeypatch.setattr(
        thinking.tokenizer, "decode", lambda ids, **_: "<think>" if [*ids] == last else "Well"
    )
    options = ONE | {"chat": {"enable_thinking": False}}
    assert "<think>" in set(
        generate(thinking, asked(1), **OPTIONS | {"chat": False}).answers["text"]
    )
    monkeypatch.setattr(thinking.tokenizer, "decode", lambda ids, **_: "<think>Well")
    words = "'q0': model llama answers with a thought, '<think>'; ask "
    for strategy in ("greedy", "threshold"):
        with pytest.raises(UnsupportedModelError, match=words):
            generate(thinking, asked(1), strategy=strategy, **options)
