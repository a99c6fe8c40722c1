"""The model card: README.md of a model folder, in the form Hugging Face reads.

In: configuration, how it was trained, held-out results.  Out: Markdown.  Next: pretrained.py
"""

from collections.abc import Mapping, Sequence

from bertkit.model.config import BertConfig


def model_card(
    config: BertConfig,
    *,
    training: Mapping[str, object],
    results: Mapping[str, float],
    parameters: int,
    next_sentence: bool,
) -> str:
    """Return the card; `training` and `results` become tables, in their order.

    next_sentence: whether the model has the next-sentence head.
    """
    shape = f"{config.num_hidden_layers} layers × {config.hidden_size}, {config.num_attention_heads} heads"
    loader = "AutoModelForPreTraining" if next_sentence else "AutoModelForMaskedLM"
    label = "Next-sentence label 0 means that B follows A, as in Google's and Hugging Face's models."
    judge = ' and `bertkit next-sentence --model PATH "A" "B"`' if next_sentence else ""
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: fill-mask",
        "tags: [bert, bertkit]",
        "---",
        "",
        "# A BERT pre-trained with bertkit",
        "",
        f"{shape}, {parameters:,} parameters, vocabulary of {config.vocab_size:,}, "
        f"at most {config.max_position_embeddings} tokens.",
        "",
        label if next_sentence else "It has a masked-LM head and no next-sentence head.",
        "",
        "## Training",
        "",
        *_table(("setting", "value"), training),
        "",
        "## Held-out results",
        "",
        *(_table(("metric", "value"), results) if results else ["Not evaluated yet."]),
        "",
        "## Use",
        "",
        "```python",
        f"from transformers import {loader}, AutoTokenizer",
        "",
        f'model = {loader}.from_pretrained("PATH")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH")',
        "```",
        "",
        f'or `bertkit fill-mask --model PATH "…[MASK]…"`{judge}.',
        "",
    ]
    return "\n".join(lines)


# Task -> Hugging Face's name of its pipeline
_PIPELINES = {
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "multiple-choice": "multiple-choice",
    "question-answering": "question-answering",
}
SHOWN_LABELS = 50


def task_card(
    task: str,
    config: BertConfig,
    *,
    labels: Sequence[str],
    architecture: str | None,
    training: Mapping[str, object],
    results: Mapping[str, float],
) -> str:
    """Return the card of a fine-tuned model; `training` and `results` become tables, in their order.

    architecture: the class of transformers that opens it; None: none does.
    """
    library = "bertkit" if architecture is None else "transformers"
    rest = len(labels) - SHOWN_LABELS
    named = ", ".join(labels[:SHOWN_LABELS]) + (f" and {rest} more" if rest > 0 else "")
    lines = [
        "---",
        f"library_name: {library}",
        f"pipeline_tag: {_PIPELINES[task]}",
        "tags: [bert, bertkit]",
        "---",
        "",
        f"# A BERT fine-tuned with bertkit for {task}",
        "",
        f"{config.num_hidden_layers} layers × {config.hidden_size}, at most {config.max_position_embeddings} tokens.",
        *(["", f"Labels: {named}."] if task in ("sequence-classification", "token-classification") else []),
        "",
        "## Training",
        "",
        *_table(("setting", "value"), training),
        "",
        "## Held-out results",
        "",
        *(_table(("metric", "value"), results) if results else ["Not evaluated yet."]),
        "",
        "## Use",
        "",
        "`bertkit predict --model PATH --input_file FILE --output_file OUT.jsonl`",
        "",
        *_in_transformers(architecture),
        "",
    ]
    return "\n".join(lines)


def _in_transformers(architecture: str | None) -> list[str]:
    if architecture is None:
        return ["Its head reads what no class of transformers does, which refuses to open it."]
    loader = architecture.replace("BertFor", "AutoModelFor")
    return [
        "Or in transformers:",
        "",
        "```python",
        f"from transformers import {loader}, AutoTokenizer",
        "",
        f'model = {loader}.from_pretrained("PATH")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH")',
        "```",
    ]


def _table(head: tuple[str, str], rows: Mapping[str, object]) -> list[str]:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    for name, value in rows.items():
        shown = f"{value:.4f}" if isinstance(value, float) and abs(value) >= 1e-3 else f"{value}"
        lines.append(f"| {name} | {shown.replace('|', '/')} |")
    return lines
