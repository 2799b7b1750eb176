"""The questions, runs and evaluations of an experiment."""

from contextlib import nullcontext
from dataclasses import replace

import pandas as pd
import pytest
from commands import answer, record, typed, write_lines
from conftest import ROOT
from pandas.testing import assert_frame_equal
from parameter_values import (
    FOR_CELLS,
    PARAMETERS,
    STRATEGIES,
    other_value,
    total,
    write_files,
    write_records,
)

from pro_lib import generation, metrics
from pro_lib.app.experiment import Experiment
from pro_lib.common import catalog
from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.models import Model
from pro_lib.labels import LabelPlan, PlannedAnswers, append_label, plan_path
from pro_lib.plots import fixed_k
from pro_lib.plots.settings import overview


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


SEEN_PARAMETERS = [name for name in PARAMETERS if name not in FOR_CELLS]

SMALL = {"model": "facts-1m", "limit": 4, "n_answers": 3, "device": "cpu"}
PAIR = ("facts-1m", "world-facts")


@pytest.fixture
def judged(tmp_path):
    """A file of 90 records, every third of which is wrong."""
    rows = [
        record(n, {"log_prob": -1.0 - n / 100, "text": f"{n}", "correct": n % 3 > 0})
        for n in range(90)
    ]
    return write_lines(tmp_path / "mine.jsonl", rows)


def test_pairs_are_those_of_models_and_datasets_or_of_records(judged):
    both = Experiment(model=["facts-2m", "facts-1m"], dataset=("world-facts", "nq")).pairs()
    assert both == [(m, d) for m in ("facts-2m", "facts-1m") for d in ("world-facts", "nq")]
    assert len(Experiment(records=judged).pairs()) == 1


def test_a_stored_run_is_read_without_the_model(tmp_path, monkeypatch):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    whole = experiment.run_of_both_splits(*PAIR)
    monkeypatch.setattr(models, "cached_model", None)
    assert_frame_equal(experiment.run_of_both_splits(*PAIR).answers, whole.answers)
    assert set(experiment.run(*PAIR).questions["split"]) == {"test"}
    for more in ({"limit": 5}, {"dtype": "bfloat16"}):
        with pytest.raises(
            TypeError, match="'NoneType' object is not callable"
        ):  # the model is asked
            replace(experiment, **more).run(*PAIR)


# By what is changed: what the error says.
MADE_OTHERWISE = {
    "dtype": "dtype='bfloat16', but dtype='auto' is float32 here; set dtype='bfloat16' to read it",
    "quantization": "requested: quantization='other'.* now quantization=None",
    "server": "requested: server='other'.* now server=None",
    "loading": r"requested: loading=\{'rms_norm_eps': 0.5\}.* now loading=None",
}


@pytest.mark.parametrize("name", MADE_OTHERWISE)
def test_a_run_whose_model_was_loaded_otherwise_is_not_read(tmp_path, monkeypatch, name):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    changes = {"dtype": "bfloat16"} if name == "dtype" else {}
    if name == "loading":  # of its options, one does not change the configuration
        changes = {"loading": {"rms_norm_eps": 0.5, "attn_implementation": "eager"}}
    parameters = Model.parameters
    with monkeypatch.context() as earlier:
        if name in ("quantization", "server"):
            earlier.setattr(Model, "parameters", lambda model: parameters(model) | {name: "other"})
        first = replace(experiment, **changes).run(*PAIR)
    with pytest.raises(RunError, match=MADE_OTHERWISE[name]):
        experiment.run(*PAIR)
    if changes:
        assert_frame_equal(replace(experiment, **changes).run(*PAIR).answers, first.answers)


def test_a_run_of_another_revision_of_a_hub_model_is_not_read(tmp_path, monkeypatch):
    cache = tmp_path / "cache" / "models--no--such"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache.parent))
    experiment = Experiment(**SMALL | {"model": "no/such"}, generations_dir=tmp_path)
    first = replace(models.load_model("facts-1m", device="cpu"), name="such", fingerprint="a" * 40)
    monkeypatch.setattr(models, "cached_model", lambda *_, **__: first)
    experiment.run("no/such", "world-facts")
    monkeypatch.setattr(models, "cached_model", None)
    for commit in (None, "a" * 40, "b" * 40):
        if commit is not None:
            snapshot = cache / "snapshots" / commit
            snapshot.mkdir(parents=True)
            (snapshot / "config.json").write_text("{}")
            (cache / "refs").mkdir(exist_ok=True)
            (cache / "refs" / "main").write_text(commit)
        is_other = commit == "b" * 40
        with pytest.raises(TypeError) if is_other else nullcontext():  # the model is asked
            experiment.run("no/such", "world-facts")


@pytest.mark.parametrize(("n_validation", "pool", "chosen"), [(8, 40, 8), (None, 45, 45)])
def test_records_without_splits_are_split_once_for_each_protocol(
    n_validation, pool, chosen, judged
):
    protocols = ["paper", "workbench"]
    splits = Experiment(records=judged, n_validation=n_validation, protocol=protocols).splits()
    assert [one.reported.protocol.split(", ")[0] for one in splits] == ["paper", "workbench"]
    for one in splits:
        sizes = [len(part.correct) for part in (one.pool, one.validation, one.reported)]
        assert sizes == [pool, chosen, 90 - pool]


def test_splits_of_all_methods_read_beams_samples_and_greedy_answers(tmp_path):
    experiment = Experiment(**SMALL | {"limit": 30}, generations_dir=tmp_path, n_validation=None)
    own, every = experiment.splits(), experiment.splits(methods="all")
    assert "SE, lexical" not in own[0].reported.baselines
    assert {"NLL", "PE", "NE", "SE, lexical", "Deg, lexical"} <= {*every[0].reported.baselines}
    assert {path.name.split(",")[0] for path in tmp_path.glob("*/*/*")} == {
        "diverse_beam",
        "multinomial",
        "greedy",
    }


def test_a_question_file_completes_the_questions_of_records(tmp_path):
    rows = [record(n, answer("yes", 0.5)) for n in range(4)]
    bare = Experiment(records=write_lines(tmp_path / "records.jsonl", rows))
    assert bare.run(*bare.pair(), "all").questions["references"].isna().all()
    questions = write_lines(
        tmp_path / "mine.jsonl", [row | {"references": ["yes"]} for row in rows]
    )
    beside = replace(bare, dataset=questions)
    assert list(beside.run(*beside.pair(), "all").questions["references"]) == [["yes"]] * 4
    assert replace(bare, similarity="alias").similarities(*bare.pair()) == {"alias": None}


def test_a_reported_split_of_one_class_is_refused_by_name(tmp_path):
    rows = [record(n, answer("x", 0.5, correct=False)) for n in range(90)]
    experiment = Experiment(records=write_lines(tmp_path / "mine.jsonl", rows), n_validation=None)
    assert experiment.evaluations(*experiment.pair(), None)[0][0].one_class()
    with pytest.raises(metrics.OneClassError, match=r"mine.*wrong"):
        experiment.splits()


def test_the_questions_that_choose_alpha_are_not_reported():
    with pytest.raises(SentenceError, match=r"^split='validation' has the questions on which al"):
        Experiment(split="validation").splits()
    with pytest.raises(SentenceError, match=r"^split='all' has the questions on which alpha is ch"):
        Experiment(records=str(catalog.EXAMPLE), split="all").splits()


def test_similarities_have_names_and_are_stored_beside_the_runs(files, tmp_path):
    (tmp_path / "my-nli").mkdir()
    given = {"generations_dir": tmp_path, "device": "cpu"}
    experiment = Experiment(similarity=["lexical", "alias", str(tmp_path / "my-nli")], **given)
    similarities = experiment.similarities("Gemma-2B", "world-facts")
    assert list(similarities) == ["lexical", "alias", "my-nli"]
    assert set(similarities["alias"].table["split"]) == {"train_shots", "validation", "test"}
    assert similarities["my-nli"].cache == tmp_path / "world-facts" / "gemma-2b"
    beside = Experiment(records=str(files / "split.jsonl"), similarity=["alias", "nli"], **given)
    nli = beside.similarities(*beside.pair())["nli"]
    assert (nli.device, nli.cache) == ("cpu", tmp_path / "split" / "records")


@pytest.fixture
def work(monkeypatch):
    """Record the options with which models are loaded and runs are generated."""
    seen = []
    load, make = models.cached_model, generation.generate

    def held(model, **options):
        if not isinstance(model, str):
            return model
        seen.append(options)
        return load(model, device="cpu", dtype=options["dtype"])

    def generated(model, questions, *, engine, n_workers, **options):
        seen.append({"engine": engine, "n_workers": n_workers if engine == "ray" else None})
        return make(model, questions, progress=False, **options)

    monkeypatch.setattr(models, "cached_model", held)
    monkeypatch.setattr(generation, "generate", generated)
    return seen


def base(kind, files, folder):
    """Return parameters, of which one is changed: of a strategy, or of records."""
    # With this seed one of the few answers is right by ROUGE-L but no exact match.
    given = {"n_validation": 8, "seed": 2, "limit": 16, "figures_dir": folder / "figures"}
    if kind == "records":
        return given | {"records": str(files / "split.jsonl")}
    given |= {"strategy": kind, "model": "facts-1m", "n_answers": 4}
    return given | {"generations_dir": folder / "runs"}


def observed(experiment, work, *, methods):
    """Return all results of an experiment that its parameters affect, except the figures."""
    work.clear()
    pair = experiment.pairs()[0]
    run = experiment.run(*pair)
    both = experiment.run_of_both_splits(*pair)
    [evaluations] = experiment.evaluations(*pair, experiment.split, methods=methods)
    splits = experiment.splits()
    judged = [
        (one.protocol, list(one.correct), total(one.log_probs), [*one.baselines])
        for one in evaluations
    ]
    return {
        "run": (run.name, run.info.parameters, run.info.cost.model_calls, run.answers.to_json()),
        "questions": both.questions[["question_id", "split"]].to_json(),
        "references": both.questions["references"].to_json(),
        "work": repr(work),
        "judged": judged,
        "validation": [(list(one.validation.answers["question_id"]), one.alphas) for one in splits],
        "pool": [list(one.pool.correct) for one in splits],
    }


# The other kinds take minutes, and so do parameters of generation whose kind others try as well.
LIKE_OTHERS = ("batch_size", "device", "dtype", "header", "stop", "strict", "template")
KINDS_AND_NAMES = [
    (kind, name)
    if kind == "records" or (kind == "diverse_beam" and name not in LIKE_OTHERS)
    else pytest.param(kind, name, marks=pytest.mark.slow)
    for kind in (*STRATEGIES, "records")
    for name in SEEN_PARAMETERS
]
# Parameters that do not change these results, because nothing uses them here.
OF_SAMPLES = ("temperature", "top_p")
HARMLESS = {
    "records": ("device", "generations_dir"),
    "diverse_beam": ("strict", "search_alpha", *OF_SAMPLES),
    "multinomial": ("strict", "search_alpha", "diversity_penalty"),
    "greedy": ("strict", "search_alpha", "diversity_penalty", "n_answers", *OF_SAMPLES),
    "threshold": ("strict", "diversity_penalty", "n_answers", *OF_SAMPLES),
}

# Parameters that change how the answers of a run are evaluated, and not the run.
OF_EVALUATION = (
    "protocol",
    "distinct",
    "convention",
    "alphas",
    "n_validation",
    "similarity",
    "correctness",
)


@pytest.fixture(scope="session")
def usual(tmp_path_factory):
    """The observations with unchanged parameters, once for each strategy and for records."""
    return {"folder": tmp_path_factory.mktemp("usual")}


def outcome(given, work, *, methods):
    """Return the observations with the parameters, or the error that they raise."""
    try:
        return observed(Experiment(**given), work, methods=methods)
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:run .* has no validation split:UserWarning")
@pytest.mark.parametrize(("kind", "name"), KINDS_AND_NAMES)
def test_a_parameter_has_an_effect_or_is_an_error_that_names_it(
    name, kind, files, work, usual, tmp_path
):
    if (name, kind) == ("strict", "records"):
        return  # about bad lines, which these records do not have; tested below
    methods = "all" if name in ("similarity", "methods") else "own"
    folder = usual["folder"] / kind / methods
    if (kind, methods) not in usual:
        usual[kind, methods] = observed(
            Experiment(**base(kind, files, folder)), work, methods=methods
        )
    expected = usual[kind, methods]
    if name in OF_EVALUATION:  # evaluates the stored run, so less work does not count
        expected = expected | {"work": "[]"}
    else:
        folder = tmp_path
    given = base(kind, files, folder) | {name: other_value(name, kind, files, tmp_path)}
    changed = outcome(given, work, methods=methods)
    if isinstance(changed, str):
        assert name in changed
    elif name in HARMLESS[kind]:
        assert {**changed, "work": ""} == {**expected, "work": ""}
    elif name == "figures_dir":
        Experiment(**given).save("table", table=pd.DataFrame({"x": [1]}))
        assert (tmp_path / "other" / "table.csv").is_file()
    elif name == "generations_dir":
        assert list((tmp_path / "other").glob("*/facts-1m/*/run.json"))
    else:
        assert changed != expected
        assert name not in OF_EVALUATION or changed["work"] == "[]"


def test_strict_refuses_records_with_a_bad_line(files, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text((files / "split.jsonl").read_text() + "{no\n")
    pair = ("records", "bad")
    with pytest.warns(UserWarning, match="1 answers that cannot be read are left out: line 41"):
        assert len(Experiment(records=str(path)).run(*pair, "all").questions) == 40
    with pytest.raises(ValueError, match="line 41"):
        Experiment(records=str(path), strict=True).run(*pair, "all")


def test_limit_draws_so_many_records_of_each_split_and_n_answers_keeps_the_first(files):
    experiment = Experiment(records=str(files / "split.jsonl"))
    pair = experiment.pair()
    both = replace(experiment, limit=6).run_of_both_splits(*pair)
    assert both.questions["split"].value_counts().to_dict() == {"validation": 6, "test": 6}
    assert set(both.answers["question_id"]) == set(both.questions["question_id"])
    kept = replace(experiment, n_answers=3).run(*pair).answers.groupby("question_id")["text"]
    assert list(kept.agg(list)) == [["Quito", "Quito", "Lima"]] * 20
    for n_answers in (None, 10):
        assert len(replace(experiment, n_answers=n_answers).run(*pair).answers) == 80


def test_a_metric_of_a_log_judges_its_answers():
    log = ROOT / "tests" / "data" / "answers" / "lm_eval_choices.jsonl"
    experiment = Experiment(records=str(log), split="all", correctness="log:acc")
    assert experiment.run(*experiment.pair()).top()["correct"].tolist() == [True, True]
    other = replace(experiment, correctness="log:f1")
    with pytest.raises(RunError, match="has no verdicts 'f1'"):
        other.run(*other.pair())
    with pytest.raises(SentenceError, match=r"^correctness='log:acc' needs a log as records"):
        Experiment(correctness="log:acc")


def test_a_split_that_records_do_not_have_names_those_they_have(files, tmp_path):
    experiment = Experiment(records=str(files / "split.jsonl"), split="dev")
    words = r"^split='dev' is not in run split/records/records; it has validation, test$"
    for read in (experiment.run, experiment.run_of_both_splits):
        with pytest.raises(RunError, match=words):
            read(*experiment.pairs()[0])
    tests = Experiment(records=write_records(tmp_path / "tests.jsonl", splits=("test",)))
    assert len(tests.run_of_both_splits(*tests.pairs()[0]).questions) == 40
    with pytest.raises(RunError, match=r"^split='validation' is not in run .*; it has test$"):
        replace(tests, split="validation").run(*tests.pairs()[0])


def test_a_notebook_of_one_pair_refuses_several(files):
    several = {"model": ["facts-2m", "facts-1m"], "dataset": ["world-facts", "nq"]}
    for name, value in several.items():
        with pytest.raises(SentenceError, match=rf"^{name}=\[.*\] has several values"):
            Experiment(**{name: value}).pair()
    assert Experiment(model="facts-1m").pair() == PAIR
    with pytest.raises(SentenceError, match=r"^records=.* this notebook takes one records"):
        Experiment(records=[str(files / "split.jsonl"), str(files / "unsplit.jsonl")]).pair()


def test_all_methods_read_the_answers_of_the_strategy(tmp_path):
    given = SMALL | {"limit": 12, "n_answers": None, "generations_dir": tmp_path}
    experiment = Experiment(**given, strategy="threshold")
    [[evaluation]] = experiment.evaluations(*PAIR, "test", methods="all")
    assert evaluation.search_alpha == experiment.search_alpha


def test_generate_refuses_a_setting_that_none_of_its_strategies_uses(monkeypatch):
    monkeypatch.setattr(Experiment, "run_of_both_splits", None)
    words = ["generate", "facts-1m", "greedy", "--dataset", "world-facts", "--search-alpha", "0.1"]
    assert "--search-alpha is for the strategy threshold" in typed(*words, code=2)[1]


def test_labels_of_a_sample_estimate_auroc_but_do_not_choose_alpha(judged, tmp_path):
    judge = Experiment(records=judged, n_validation=20)
    [evaluations] = judge.evaluations(*judge.pair(), "test")
    labels = tmp_path / "labels.jsonl"
    plan = LabelPlan.create(evaluations[0], n_labels=25)
    plan.save(plan_path(labels))
    planned = PlannedAnswers(plan, evaluations[0])
    for position in plan.first:
        request = planned.request(position, False)
        append_label(labels, planned.label(request, True, labeller="ada"))
    experiment = replace(judge, correctness=str(labels))
    assert experiment.rules.correctness == "rouge_l"
    splits = experiment.splits()[0]
    assert splits.reported.sampled_judgement.counts["n_right"] == 20
    assert splits.pool.sampled_judgement is None
    table = fixed_k.table(experiment.splits())
    assert set(table["judge"]) == {"labels"}
    assert set(table["interval"]) == {"from labels of a sample"}
    assert "judge" not in fixed_k.table(judge.splits())


def test_a_loaded_model_works_like_its_name_and_finds_its_run(tmp_path, monkeypatch):
    given = SMALL | {"generations_dir": tmp_path / "runs"}
    by_name = Experiment(**given).reported_evaluations
    model = models.cached_model("facts-1m", device="cpu")
    monkeypatch.setattr(generation, "generate", None)  # nothing is generated again
    experiment = Experiment(**given | {"model": model})
    assert experiment.pair() == PAIR
    for one, other in zip(by_name, experiment.reported_evaluations, strict=True):
        assert_frame_equal(one.baselines, other.baselines)


def test_a_function_decides_which_answers_are_right(tmp_path):
    def starts_alike(texts, references):
        pairs = zip(texts, references, strict=True)
        return [text[0] in {name[0] for name in names} for text, names in pairs]

    experiment = Experiment(**SMALL, generations_dir=tmp_path, correctness=starts_alike)
    [judged_once, *_] = experiment.reported_evaluations
    names = experiment.questions("world-facts").table["references"]
    expected = starts_alike(judged_once.answers["text"], names)
    assert judged_once.correct.tolist() == expected
    assert set(overview(experiment.splits())["correctness"]) == {"starts_alike"}
    wrong = replace(experiment, correctness=lambda texts, names: [True])
    with pytest.raises(SentenceError, match="returned an array of shape"):
        _ = wrong.reported_evaluations
