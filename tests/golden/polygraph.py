"""Write polygraph.json: the scores of LM-Polygraph 0.7 for made-up answers.

LM-Polygraph needs an environment of its own:

    python -m venv polygraph && polygraph/bin/pip install torch==2.13.0 lm-polygraph==0.7.0
    polygraph/bin/python tests/golden/polygraph.py

No model is loaded: log-likelihoods, texts and entailment probabilities are drawn here, and only the
formulas run.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from lm_polygraph import estimators
from lm_polygraph.stat_calculators.semantic_classes import SemanticClassesCalculator

GOLDEN = Path(__file__).with_suffix(".json")
N_QUESTIONS, N_SAMPLES, MAX_TOKENS = 12, 8, 6
WORDS = ("the red house", "red house", "a blue house", "blue", "Red House", "green boat")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


def drawn(rng: np.random.Generator) -> dict[str, np.ndarray | list]:
    """Return texts (some twice), token log-likelihoods and NLI probabilities."""
    names = [
        [WORDS[k] for k in rng.integers(len(WORDS), size=1 + N_SAMPLES)] for _ in range(N_QUESTIONS)
    ]
    tokens = [
        [(-rng.exponential(0.7, size=rng.integers(1, MAX_TOKENS))).tolist() for _ in row]
        for row in names
    ]
    nli = np.empty((N_QUESTIONS, 1 + N_SAMPLES, 1 + N_SAMPLES, 3))
    for question, row in enumerate(names):
        # One draw per pair of texts, leaning towards entailment so that clusters form;
        # equal texts are judged too.
        table = {(a, b): rng.dirichlet([1.2, 0.4, 0.4]) for a in WORDS for b in WORDS}
        for i, first in enumerate(row):
            for j, second in enumerate(row):
                nli[question, i, j] = table[first, second]
    return {"texts": names, "token_log_likelihoods": tokens, "nli": nli}


def scores(drawn_inputs: dict) -> dict[str, list[float]]:
    """The estimators' values on these inputs, under their own names."""
    nli, samples = drawn_inputs["nli"], slice(1, None)
    greedy = [row[0] for row in drawn_inputs["token_log_likelihoods"]]
    sampled = [row[samples] for row in drawn_inputs["token_log_likelihoods"]]
    stats = {
        "greedy_log_likelihoods": greedy,
        "greedy_log_probs": greedy,
        "sample_log_likelihoods": sampled,
        "sample_log_probs": [[sum(tokens) for tokens in row] for row in sampled],
        "sample_tokens": sampled,  # only their number is read
        "sample_texts": [row[samples] for row in drawn_inputs["texts"]],
        "semantic_matrix_entail": nli[:, 1:, 1:, ENTAILMENT],
        "semantic_matrix_contra": nli[:, 1:, 1:, CONTRADICTION],
        "semantic_matrix_classes": nli[:, 1:, 1:].argmax(-1),
        "entailment_id": ENTAILMENT,
        "greedy_semantic_matrix_contra_forward": nli[:, 0, 1:, CONTRADICTION],
        "greedy_semantic_matrix_neutral_forward": nli[:, 0, 1:, NEUTRAL],
    }
    stats |= SemanticClassesCalculator()(stats, texts=[], model=None)
    plain = ("MaximumSequenceProbability", "Perplexity", "MonteCarloSequenceEntropy")
    plain += ("MonteCarloNormalizedSequenceEntropy", "SemanticEntropy")
    used = [getattr(estimators, name)() for name in plain]
    used.append(estimators.SemanticEntropy(class_probability_estimation="frequency"))
    used += [
        estimators.DegMat(**how)
        for how in ({}, {"affinity": "contra"}, {"similarity_score": "Jaccard_score"})
    ]
    used.append(estimators.SemanticDensity(concat_input=False))
    return {str(e) or "SemanticEntropy": np.asarray(e(stats), dtype=float).tolist() for e in used}


if __name__ == "__main__":
    if not version("lm-polygraph").startswith("0.7."):
        raise SystemExit(f"lm-polygraph is {version('lm-polygraph')}, not 0.7")
    inputs = drawn(np.random.default_rng(20251209))
    content = {"lm_polygraph": version("lm-polygraph"), "scores": scores(inputs)}
    content |= {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in inputs.items()
    }
    GOLDEN.write_text(json.dumps(content) + "\n")
