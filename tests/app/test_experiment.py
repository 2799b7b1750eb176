"""The parameters of a notebook, and what they ask for: questions, runs, evaluations."""

import re
from dataclasses import fields, replace
from importlib import import_module

import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import ROOT
from pandas.testing import assert_frame_equal
from setting_values import (
    FIXED,
    FOR_CELLS,
    OF_FILES,
    OTHER,
    STRATEGIES,
    total,
    write_lines,
    write_questions,
    write_records,
)

from pro_lib import metrics
from pro_lib.app.cli import pro
from pro_lib.app.experiment import Experiment
from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.runs import storage

generate = import_module("pro_lib.generation.generate")

SMALL = {"model": "facts-1m", "limit": 4, "n_answers": 3, "device": "cpu"}
PAIR = ("facts-1m", "world-facts")


def judged(n, *, right=lambda n: n % 3 > 0):
    """Records of n questions whose answers are right or wrong as said."""
    answers = ([{"log_prob": -1.0 - k / 100, "text": f"{k}", "correct": right(k)}] for k in range(n))
    return [{"question_id": k, "answers": one} for k, one in enumerate(answers)]


WRONG = {"model": 5, "dataset": "world-fact", "split": "tset", "strategy": "beams", "protocol": "papers"}
WRONG |= {"convention": "all", "alphas": [2.0], "alpha": float("nan"), "target": [1.5], "search_alpha": 0, "columns": 3}
WRONG |= {"n_answers": 2.5, "temperature": 0, "stop": ".", "limit": 0, "seed": -1, "batch_size": 0, "dtype": "float"}
WRONG |= {"engine": "spark", "similarity": "nil", "correctness": "rouge", "records": "nowhere.jsonl"}
TOGETHER = [{"split": "validation", "reported": True}, {"alpha": 0.01, "strategy": "threshold"}, {"model": []}]


@pytest.mark.parametrize("values", [*({name: value} for name, value in WRONG.items()), *TOGETHER], ids=str)
def test_a_parameter_that_cannot_be_is_one_sentence_that_names_it_and_its_value(values):
    (name, value), *_ = values.items()
    shown = repr(value[0] if name in ("alphas", "target") else value)
    with pytest.raises(ValueError, match=rf"^{name}(\[0\])?={re.escape(shown)} [^\n]*$"):
        Experiment(**values).pairs()


def test_one_name_or_several_make_pairs_and_records_their_own(tmp_path):
    both = Experiment(model=["facts-2m", "facts-1m"], dataset=("world-facts", "nq")).pairs()
    assert both == [(m, d) for m in ("facts-2m", "facts-1m") for d in ("world-facts", "nq")]
    assert len(Experiment(records=write_lines(tmp_path / "mine.jsonl", judged(2))).pairs()) == 1


CELL = 'model: str = "facts-1m"  # a model\nalpha: float = 0.4  # the default α'


def notebook(*cells, **constants):
    """What `Experiment.from_notebook(globals(), ...)` returns in a notebook whose cells so far are these."""
    names = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, names)
    return Experiment.from_notebook(names, **constants)


def test_what_is_declared_or_injected_counts_and_nothing_else_that_a_cell_leaves():
    made = notebook("seed = 7\nlimit = 3", CELL, "n_answers = 2")
    assert (made.model, made.alpha, made.seed, made.limit, made.n_answers) == ("facts-1m", 0.4, 0, None, None)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\nbatch_size = 8\n")
    assert (made.alpha, made.batch_size) == (0.3, 8)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\n", CELL.replace("0.4", "0.2"))
    assert made.alpha == 0.2  # the latest parameters cell counts
    assert notebook(CELL, strategy="threshold", reported=True).strategy == "threshold"
    with pytest.raises(SentenceError, match=r"^alhpa is no parameter; the nearest is alpha$"):
        notebook(CELL, "# Parameters\nalhpa = 0.3\n")


FOLDERS = [({"alpha": 0.3, "limit": 200}, "alpha=0.3,limit=200"), ({"seed": 0, "generations_dir": "runs"}, None)]


@pytest.mark.parametrize(("given", "name"), [*FOLDERS, ({"model": ["facts-2m"], "stop": []}, None)])
def test_figures_of_other_values_have_a_folder_of_their_own(given, name, capsys, tmp_path):
    injected = "# Parameters\n" + "".join(f"{key} = {value!r}\n" for key, value in given.items())
    cell = CELL.replace("facts-1m", "facts-2m")
    folder = ROOT / "figures" / "other" / name if name else ROOT / "figures"
    assert notebook(cell, injected).figures_dir == folder
    assert capsys.readouterr().out == (f"Figures go to {folder}\n" if name else "")
    assert notebook(cell, f"{injected}figures_dir = {str(tmp_path)!r}\n").figures_dir == tmp_path


def test_a_value_of_another_notebook_has_a_folder_of_its_own(capsys):
    cell = "similarity: list[str] = ['lexical', 'alias']"
    folder = ROOT / "figures" / "other" / "similarity=lexical"
    assert notebook(cell, "# Parameters\nsimilarity = 'lexical'\n").figures_dir == folder
    assert capsys.readouterr().out == f"Figures go to {folder}\n"


def test_labels_that_cannot_be_read_end_a_notebook_before_anything_is_made(tmp_path):
    (labels := tmp_path / "labels.csv").write_text("question_id,text\n1,yes\n")
    injected = f"# Parameters\ngenerations_dir = {str(tmp_path / 'runs')!r}\ncorrectness = {str(labels)!r}\n"
    with pytest.raises(ValueError, match=f"^{re.escape(str(labels))}, line 2: correct"):
        notebook(CELL, injected)
    assert list(tmp_path.iterdir()) == [labels]


def test_a_run_is_made_once_and_read_without_the_model(tmp_path, monkeypatch):
    settings = Experiment(**SMALL, generations_dir=tmp_path)
    whole = settings.both_splits(*PAIR)
    monkeypatch.setattr(models, "held", None)
    assert_frame_equal(settings.both_splits(*PAIR).answers, whole.answers)
    assert set(settings.run(*PAIR).questions["split"]) == {"test"}
    for more in ({"limit": 5}, {"dtype": "bfloat16"}):
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):  # the model is asked
            replace(settings, **more).run(*PAIR)


APART = [("multinomial", "temperature", 0.7), ("greedy", "n_shots", 1), ("threshold", "search_alpha", 0.1)]


@pytest.mark.parametrize(("strategy", "name", "value"), APART)
def test_what_decides_the_answers_has_a_folder_where_it_is_found(strategy, name, value, tmp_path, monkeypatch):
    usual = Experiment(model="facts-1m", limit=2, strategy=strategy, generations_dir=tmp_path, device="cpu")
    other = replace(usual, **{name: value})
    runs = [settings.run(*PAIR) for settings in (usual, other)]
    folders = sorted(path.name for path in (tmp_path / "world-facts" / "facts-1m").iterdir())
    assert [folder.partition("=")[0] for folder in folders] == [strategy, f"{strategy},{name}"]
    assert storage.difference(*(run.info.parameters for run in runs)) is not None
    monkeypatch.setattr(models, "held", None)
    assert_frame_equal(other.run(*PAIR).answers, runs[1].answers)


@pytest.mark.parametrize(("n_validation", "pool", "chosen"), [(8, 40, 8), (None, 45, 45)])
def test_records_without_splits_are_split_once_for_each_protocol(n_validation, pool, chosen, tmp_path):
    settings = Experiment(records=write_lines(tmp_path / "mine.jsonl", judged(90)), n_validation=n_validation)
    splits = settings.splits()
    assert [one.reported.protocol.split(", ")[0] for one in splits] == ["paper", "workbench"]
    for one in splits:
        sizes = [len(part.correct) for part in (one.pool, one.validation, one.reported)]
        assert sizes == [pool, chosen, 90 - pool]


def test_splits_of_all_methods_read_beams_samples_and_greedy_answers(tmp_path):
    settings = Experiment(**SMALL | {"limit": 30}, generations_dir=tmp_path, n_validation=None)
    own, every = settings.splits(), settings.splits(methods="all")
    assert "SE, lexical" not in own[0].reported.baselines
    assert {"NLL", "PE", "NE", "SE, lexical", "Deg, lexical"} <= {*every[0].reported.baselines}
    assert {path.name.split(",")[0] for path in tmp_path.glob("*/*/*")} == {"diverse_beam", "multinomial", "greedy"}


def test_a_question_file_beside_records_says_what_was_asked(tmp_path):
    rows = [{"question_id": f"q{n}", "question": f"{n}?", "references": ["yes"]} for n in range(4)]
    content = {"content": [{"token": "yes", "logprob": -0.5}]}
    response = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop", "logprobs": content}]}
    records = write_lines(
        tmp_path / "responses.jsonl", [{"question_id": f"q{n}", "response": response} for n in range(4)]
    )
    bare = Experiment(records=records)
    assert bare.run(*bare.pairs()[0], "all").questions["references"].isna().all()
    beside = Experiment(records=records, dataset=write_lines(tmp_path / "mine.jsonl", rows))
    assert list(beside.run(*beside.pairs()[0], "all").questions["references"]) == [["yes"]] * 4
    assert Experiment(similarity="alias", records=records).similarities(*bare.pairs()[0]) == {"alias": None}


def test_a_reported_split_of_one_class_is_refused_by_name(tmp_path):
    path = write_lines(tmp_path / "mine.jsonl", judged(90, right=lambda _: False))
    settings = Experiment(records=path, n_validation=None)
    assert settings.evaluations(*settings.pairs()[0], None)[0].one_class()
    with pytest.raises(metrics.OneClassError, match=r"mine.*wrong"):
        replace(settings, reported=True).evaluations(*settings.pairs()[0], "test")


def test_similarities_are_named_and_kept_beside_the_runs(tmp_path):
    (tmp_path / "my-nli").mkdir()
    settings = Experiment(similarity=["lexical", "alias", str(tmp_path / "my-nli")], generations_dir=tmp_path)
    similarities = settings.similarities("Gemma-2B", "world-facts")
    assert list(similarities) == ["lexical", "alias", "my-nli"]
    assert set(similarities["alias"].table["split"]) == {"train_shots", "validation", "test"}
    assert similarities["my-nli"].cache == tmp_path / "world-facts" / "gemma-2b"


def test_a_figure_shows_the_protocols_asked_for_and_its_table_all(tmp_path):
    table = pd.DataFrame({"protocol": ["paper", "workbench, ROUGE-L"], "alpha": [0.4, 1 / 3]})
    protocols = ("paper", "workbench", ["paper", "workbench"])
    assert [len(Experiment(protocol=names).drawn(table)) for names in protocols] == [1, 1, 2]
    settings = Experiment(figures_dir=tmp_path / "mine")
    assert settings.store(table, "both") is table
    assert (tmp_path / "mine" / "both.csv").read_text().splitlines()[2] == '"workbench, ROUGE-L",0.333333'
    assert "nothing to show" in settings.store(table.head(0), "none")
    assert not (tmp_path / "mine" / "none.csv").exists()


# --- Every parameter has an effect, or is an error that names it ---

PARAMETERS = [field.name for field in fields(Experiment) if field.name not in FIXED]
SEEN_PARAMETERS = [name for name in PARAMETERS if name not in FOR_CELLS]


def test_every_parameter_has_another_value_in_the_table():
    assert set(OTHER) | set(OF_FILES) == set(PARAMETERS)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Records with splits, records without, and a question file of both, in one folder."""
    folder = tmp_path_factory.mktemp("settings")
    write_records(folder / "split.jsonl")
    write_records(folder / "unsplit.jsonl", splits=())
    write_questions(folder / "questions.jsonl")
    return folder


@pytest.fixture
def work(monkeypatch):
    """The options that models are loaded with and runs are generated with; Ray and devices are not needed."""
    seen = []
    load, make = models.held, generate.generate

    def held(model, **options):
        if not isinstance(model, str):
            return model
        seen.append(options)
        return load(model, device="cpu", dtype=options["dtype"])

    def generated(model, questions, *, engine, n_workers, **options):
        seen.append({"engine": engine, "n_workers": n_workers if engine == "ray" else None})
        return make(model, questions, progress=False, **options)

    monkeypatch.setattr(models, "held", held)
    monkeypatch.setattr(generate, "generate", generated)
    return seen


def base(kind, files, folder):
    """The parameters that one of them is changed of: of a strategy, or of records."""
    # With this seed one of the few answers is right by ROUGE-L but no exact match.
    given = {"n_validation": 10, "seed": 2, "figures_dir": folder / "figures"}
    if kind == "records":
        return given | {"records": str(files / "split.jsonl"), "limit": 15}
    return given | {"strategy": kind, "model": "facts-1m", "limit": 30, "generations_dir": folder / "runs"}


def other_value(name, kind, files, folder):
    if name == "records":
        return str(files / "unsplit.jsonl")
    if name == "dataset" and kind == "records":
        return str(files / "questions.jsonl")
    if name == "model" and kind == "records":
        return "facts-1m"
    if name == "strategy" and kind == "multinomial":
        return "greedy"
    return folder / "other" if name in OF_FILES else OTHER[name]


def observed(settings, work, *, methods):
    """What the parameters have decided: runs, work, questions, answers and evaluations, but no folder of figures."""
    work.clear()
    pair = settings.pairs()[0]
    run = settings.run(*pair)
    both = settings.both_splits(*pair)
    evaluations = settings.evaluations(*pair, settings.split, methods=methods)
    splits = settings.splits()
    judged = [(one.protocol, list(one.correct), total(one.log_probs), [*one.baselines]) for one in evaluations]
    table = pd.DataFrame({"protocol": [one.protocol for one in evaluations]})
    return {
        "run": (run.name, run.info.parameters, run.info.cost.model_calls, run.answers.to_json()),
        "questions": both.questions[["question_id", "split"]].to_json(),
        "references": both.questions["references"].to_json(),
        "work": repr(work),
        "judged": judged,
        "drawn": list(settings.drawn(table)["protocol"]),
        "validation": [(list(one.validation.answers["question_id"]), one.alphas) for one in splits],
        "pool": [list(one.pool.correct) for one in splits],
    }


# The others take minutes; what they refuse is tried below for each of them.
QUICK = ("diverse_beam", "records")
KINDS = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in (*STRATEGIES, "records")]


@pytest.fixture(scope="session")
def usual(tmp_path_factory):
    """What is observed of unchanged parameters, once for each strategy and for records."""
    return {"folder": tmp_path_factory.mktemp("usual")}


def outcome(given, work, *, methods):
    """What is observed of the parameters, or the error that they are."""
    try:
        return observed(Experiment(**given), work, methods=methods)
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:run .* has no validation split:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SEEN_PARAMETERS)
def test_a_parameter_has_an_effect_or_is_an_error_that_names_it(name, kind, files, work, usual, tmp_path):
    methods = "all" if name == "similarity" else "own"
    if (kind, methods) not in usual:
        unchanged = base(kind, files, usual["folder"] / kind / methods)
        usual[kind, methods] = observed(Experiment(**unchanged), work, methods=methods)
    given = base(kind, files, tmp_path) | {name: other_value(name, kind, files, tmp_path)}
    changed = outcome(given, work, methods=methods)
    if isinstance(changed, str):
        assert name in changed
    elif name == "figures_dir":
        Experiment(**given).store(pd.DataFrame({"x": [1]}), "table")
        assert (tmp_path / "other" / "table.csv").is_file()
    elif name == "generations_dir":
        assert list((tmp_path / "other").glob("*/facts-1m/*/run.json"))
    else:
        assert changed != usual[kind, methods]


NOT_FOR_RECORDS = ["model", "strategy", "temperature", "top_p", "diversity_penalty", "search_alpha", "max_new_tokens"]
NOT_FOR_RECORDS += [
    "stop",
    "n_shots",
    "header",
    "template",
    "chat",
    "loading",
    "engine",
    "batch_size",
    "device",
    "dtype",
]


@pytest.mark.parametrize("name", [*NOT_FOR_RECORDS, "generations_dir"])
def test_records_refuse_what_decides_generation(name, files, tmp_path):
    value = other_value(name, "records", files, tmp_path)
    with pytest.raises(SentenceError, match=f"^{name}=.* has no effect: the answers come from records=.*; remove it$"):
        Experiment(records=str(files / "split.jsonl"), **{name: value})


def test_an_nli_model_uses_device_and_folder_beside_records(files, tmp_path):
    given = {"similarity": ["alias", "nli"], "device": "cpu", "generations_dir": tmp_path}
    settings = Experiment(records=str(files / "split.jsonl"), **given)
    nli = settings.similarities(*settings.pairs()[0])["nli"]
    assert (nli.device, nli.cache) == ("cpu", tmp_path / "split" / "records")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_setting_of_another_strategy_names_both(strategy):
    users = {"temperature": ["multinomial"], "top_p": ["multinomial"], "diversity_penalty": ["diverse_beam"]}
    users |= {"search_alpha": ["threshold"], "n_answers": ["multinomial", "diverse_beam"]}
    for name, having in users.items():
        if strategy in having:
            assert getattr(Experiment(strategy=strategy, **{name: OTHER[name]}), name) == OTHER[name]
            continue
        words = f"strategy {strategy} does not use it; it is a parameter of {' and '.join(having)}$"
        with pytest.raises(SentenceError, match=f"^{name}={OTHER[name]} has no effect: {words}"):
            Experiment(strategy=strategy, **{name: OTHER[name]})
        assert Experiment(strategy=strategy, other_strategies=having, **{name: OTHER[name]}).strategy == strategy


def test_workers_need_ray():
    with pytest.raises(SentenceError, match=r"^n_workers=2 has no effect: only engine='ray' has workers$"):
        Experiment(n_workers=2)
    assert Experiment(n_workers=2, engine="ray").n_workers == 2


DATASETS = [("typo.csv", "is not a file"), ("nq", "is not a file"), (["world-facts", "nq"], "give one file")]


@pytest.mark.parametrize(("dataset", "words"), DATASETS, ids=str)
def test_a_dataset_beside_records_is_one_question_file(dataset, words, files):
    with pytest.raises(SentenceError, match=rf"^dataset={re.escape(repr(dataset))} .*{words}"):
        Experiment(records=str(files / "split.jsonl"), dataset=dataset)


def ids(run):
    return list(run.questions["question_id"])


def test_limit_draws_records_of_each_split_with_the_seed(files):
    first = Experiment(records=str(files / "split.jsonl"), limit=6)
    pair = first.pairs()[0]
    both = first.both_splits(*pair)
    assert both.questions["split"].value_counts().to_dict() == {"validation": 6, "test": 6}
    assert ids(both.select(split="test")) == ids(first.run(*pair))
    assert set(both.answers["question_id"]) == set(ids(both))
    assert ids(replace(first, seed=1).run(*pair)) != ids(first.run(*pair))
    assert ids(replace(first, limit=1000).run(*pair)) == [f"q{n}" for n in range(1, 40, 2)]


def test_n_answers_keeps_the_first_answers_of_records(files):
    settings = Experiment(records=str(files / "split.jsonl"))
    pair = settings.pairs()[0]
    kept = replace(settings, n_answers=3).run(*pair).answers.groupby("question_id")["text"].agg(list)
    assert list(kept) == [["Quito", "Quito", "Lima"]] * 20
    assert len(settings.run(*pair).answers) == 80
    assert len(replace(settings, n_answers=10).run(*pair).answers) == 80


def test_a_split_that_records_do_not_have_names_those_they_have(files, tmp_path):
    settings = Experiment(records=str(files / "split.jsonl"), split="dev")
    words = r"^split='dev' is not in run split/records/records; it has validation, test$"
    for read in (settings.run, settings.both_splits):
        with pytest.raises(RunError, match=words):
            read(*settings.pairs()[0])
    tests = Experiment(records=write_records(tmp_path / "tests.jsonl", splits=("test",)))
    assert len(tests.both_splits(*tests.pairs()[0]).questions) == 40
    with pytest.raises(RunError, match=r"^split='validation' is not in run tests/records/records; it has test$"):
        replace(tests, split="validation").run(*tests.pairs()[0])


def test_records_without_splits_are_drawn_and_all_is_every_question(files):
    settings = Experiment(records=str(files / "unsplit.jsonl"), n_validation=2)
    pair = settings.pairs()[0]
    validation, test = (replace(settings, split=name).run(*pair) for name in ("validation", "test"))
    assert (len(ids(validation)), len(ids(test))) == (10, 30)
    assert not {*ids(validation)} & {*ids(test)}
    assert {*ids(settings.both_splits(*pair))} == {*ids(validation), *ids(test)}
    assert ids(replace(settings, split="all").run(*pair)) == [f"q{n}" for n in range(40)]
    assert len(ids(replace(settings, split="all").both_splits(*pair))) == 40


# --- Values that name nothing, or the same twice ---

LISTED = {"model": ["facts-1m", ""], "dataset": ["world-facts", ""], "protocol": ["paper", ""]}
LISTED |= {
    "similarity": ["alias", ""],
    "records": ["r.jsonl", ""],
    "stop": [""],
    "chat": {"": True},
    "loading": {"": 1},
}
EMPTY = [(name, value) for name in PARAMETERS for value in ("", "  ", "\n") if name != "header"]


@pytest.mark.parametrize(("name", "value"), [*EMPTY, *LISTED.items()], ids=str)
def test_an_empty_text_is_an_error_that_names_the_parameter(name, value):
    with pytest.raises(SentenceError, match=rf"^{name}(\[\d\])?="):
        Experiment(**{name: value})


def test_an_empty_header_is_the_default():
    assert Experiment(header="").header == Experiment().header == ""


@pytest.mark.parametrize("name", ["figures_dir", "generations_dir"])
def test_an_empty_folder_in_a_notebook_is_an_error_and_not_the_committed_one(name):
    with pytest.raises(SentenceError, match=f"^{name}='' must be a path"):
        notebook(CELL, f"# Parameters\n{name} = ''\n")


def test_a_repeated_name_is_an_error_that_names_it(tmp_path):
    records = write_records(tmp_path / "r.jsonl")
    repeated = {"model": "facts-1m", "dataset": "world-facts", "protocol": "paper", "similarity": "alias"}
    for name, value in {**repeated, "records": records}.items():
        with pytest.raises(SentenceError, match=f"^{name}={re.escape(repr(value))} is given twice; give it once$"):
            Experiment(**{name: [value, value]})
    (tmp_path / "facts-1m").symlink_to(ROOT / "data" / "models" / "facts-1m")
    for name, pair in {"model": ["me/one", "you/one"], "similarity": ["me/nli", "you/nli"]}.items():
        with pytest.raises(SentenceError, match=f"^{name}='{pair[1]}' has the same name as '{pair[0]}'"):
            Experiment(**{name: pair})


@pytest.mark.parametrize(("option", "parameter"), [("dtype", "dtype"), ("torch_dtype", "dtype"), ("name", "model")])
def test_loading_points_to_the_parameter_that_it_repeats(option, parameter):
    with pytest.raises(SentenceError, match=f"^loading=.* must not have '{option}': use the parameter {parameter}$"):
        Experiment(loading={option: "float32"})


def test_an_option_that_transformers_refuses_is_one_sentence():
    settings = Experiment(loading={"colour": 1}, device="cpu")
    with pytest.raises(SentenceError, match=r"^loading=\{'colour': 1\} has an option that transformers does not take"):
        settings.loaded("facts-1m")


# --- What a notebook uses ---


def test_a_parameter_that_the_notebook_does_not_use_is_an_error():
    words = r"^target=\(0.9,\) is not used by this notebook; beside its models, questions and answers it uses alpha$"
    with pytest.raises(SentenceError, match=words):
        notebook(CELL, "# Parameters\ntarget = [0.9]\n", uses=["alpha"])
    assert notebook(CELL, "# Parameters\ntarget = [0.9]\n", uses=["alpha", "target"]).target == (0.9,)
    assert notebook(CELL, "# Parameters\ntarget = [0.9]\n").target == (0.9,)


def test_a_parameter_that_the_notebook_fixes_is_an_error():
    words = r"^strategy='greedy' has no effect: this notebook fixes strategy='threshold'; remove it$"
    with pytest.raises(SentenceError, match=words):
        notebook(CELL, "# Parameters\nstrategy = 'greedy'\n", strategy="threshold")
    assert notebook(CELL, "# Parameters\nstrategy = 'threshold'\n", strategy="threshold").strategy == "threshold"


def test_what_a_notebook_comes_with_is_no_error_beside_records(files):
    cell = "model: list[str] = ['facts-2m', 'facts-1m']\nsearch_alpha: float = 0.005"
    injected = f"# Parameters\nrecords = {str(files / 'split.jsonl')!r}\nfigures_dir = 'figures'\n"
    assert notebook(cell, injected, uses=[], other_strategies=["threshold"]).records
    with pytest.raises(SentenceError, match=r"^search_alpha=0.1 has no effect: the answers come from records="):
        notebook(cell, f"{injected}search_alpha = 0.1\n", uses=[], other_strategies=["threshold"])


def test_a_seed_needs_something_to_draw(files):
    cell = CELL.replace("facts-1m", "facts-2m")
    seeded = "# Parameters\nfigures_dir = 'figures'\nseed = 1\n"
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect: nothing is drawn at random"):
        notebook(cell, seeded, uses=["alpha"])
    for more in ("limit = 5", "strategy = 'multinomial'", f"records = {str(files / 'unsplit.jsonl')!r}"):
        assert notebook(cell, f"{seeded}{more}\n", uses=["alpha"]).seed == 1
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect"):
        notebook(cell, f"{seeded}records = {str(files / 'split.jsonl')!r}\n", uses=["alpha"])


def test_n_validation_needs_questions_without_a_validation_split(files):
    given = "# Parameters\nfigures_dir = 'figures'\nn_validation = 5\n"
    with pytest.raises(SentenceError, match=r"^n_validation=5 has no effect: this notebook does not choose alpha"):
        notebook(CELL, given, uses=["alpha"])
    lending = f"{given}dataset = {str(files / 'questions.jsonl')!r}\n"
    assert notebook(CELL, lending, uses=["alpha"]).n_validation == 5


def test_a_notebook_of_one_pair_refuses_several(files):
    for name, value in {"model": ["facts-2m", "facts-1m"], "dataset": ["world-facts", "nq"]}.items():
        with pytest.raises(
            SentenceError, match=rf"^{name}=\[.*\]: this notebook is of one {name} at a time; give one$"
        ):
            Experiment(**{name: value}).pair()
    assert Experiment(model="facts-1m").pair() == PAIR
    with pytest.raises(SentenceError, match=r"^records=.* is of one records at a time"):
        Experiment(records=[str(files / "split.jsonl"), str(files / "unsplit.jsonl")]).pair()


def test_all_methods_read_the_answers_of_the_strategy(tmp_path):
    given = SMALL | {"limit": 30, "n_answers": None, "generations_dir": tmp_path, "strategy": "threshold"}
    settings = Experiment(**given)
    assert settings.evaluations(*PAIR, "test", methods="all")[0].search_alpha == settings.search_alpha


def test_generate_refuses_a_setting_that_none_of_its_strategies_uses(monkeypatch):
    made = []
    monkeypatch.setattr(Experiment, "run", lambda settings, *pair, strategy: made.append(strategy))
    monkeypatch.setattr(Experiment, "both_splits", lambda settings, *pair: made.append(pair[2]))
    words = ["generate", "facts-1m", "greedy", "--dataset", "world-facts", "--search-alpha", "0.1"]
    refused = CliRunner().invoke(pro, words)
    assert refused.exit_code == 1
    assert refused.output.startswith("Error: search_alpha=0.1 has no effect: strategy greedy does not use it")
    assert made == []
    assert CliRunner().invoke(pro, [*words, "threshold", "--limit", "3"]).exit_code == 0
    assert made == ["greedy", "threshold"]


def test_score_reads_records_of_every_split(files):
    result = CliRunner().invoke(pro, ["score", str(files / "split.jsonl"), "--output", str(files / "scores.csv")])
    assert result.output.startswith(f"{files / 'scores.csv'}: 40 questions\n")
