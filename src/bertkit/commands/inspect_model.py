"""`bertkit inspect model DIR`: what stands in a model folder, whether its tokenizer fits, whether its head is trained.

In: a model folder or an id of the hub.  Out: configuration, what became of every tensor, parameters, the tokenizer
checked against the model, and the masked-LM loss on a few sentences beside that of a guess.  Next: model/probe.py
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit import console
from bertkit.commands.inspect_vocab import entries_of
from bertkit.errors import InputError
from bertkit.options import ALLOW_BIN, argument, option
from bertkit.tasks.tokenizers import PADDED_TO, cut_short
from bertkit.text.given import given_texts
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, with_special_tokens
from bertkit.text.vocabulary import MASK, UNK, read_vocabulary

if TYPE_CHECKING:
    from bertkit.model.load_report import LoadReport
    from bertkit.model.pretrained import Model
    from bertkit.model.probe import Probe

Row = tuple[str, int | str]
LABELLED = ("sequence_classification", "token_classification")  # heads whose labels have names
SHOWN_LABELS = 20
MOST_UNKNOWN = 0.2  # share of [UNK] above which a vocabulary is not one for a language
SENTENCES: dict[str, tuple[str, ...]] = {
    "Chinese": (
        "今天天气很好，我们一起去公园里散步。",
        "他每天早上六点起床，吃完早饭就去学校上课。",
        "这本书的作者是一位很有名的作家。",
        "北京是中国的首都，也是一座历史悠久的城市。",
        "如果明天下雨，比赛就要推迟到下个星期。",
    ),
    "English": (
        "The weather was fine, so we went for a walk in the park.",
        "He gets up at six every morning and goes to school after breakfast.",
        "The author of this book is a well-known writer.",
        "Paris is the capital of France and the largest city in the country.",
        "If it rains tomorrow, the game will be put off until next week.",
    ),
}


@dataclass(frozen=True)
class Config:
    """Which model, what its masked-LM head is tried on, and how much is shown."""

    path: str = argument(help="model folder, or owner/name of the Hugging Face hub")
    input_file: str | None = option(
        None, help="file with one text a line that the masked-LM head is tried on (null: ten built-in sentences)"
    )
    allow_bin: bool = option(False, help=ALLOW_BIN)
    show_tensors: bool = option(False, help="print every tensor with what became of it")
    json: bool = option(False, help="print everything as one line of JSON")


@dataclass(frozen=True)
class Findings:
    """Everything that is shown."""

    head: str
    configuration: dict[str, Any]
    labels: tuple[str, ...]  # of a head of fine-tuning
    report: "LoadReport"
    parameters: dict[str, int]
    tokenizer: list[Row]
    probes: dict[str, "Probe"]  # language, or the file's name -> what the head made of it
    remarks: list[str]


def run(config: Config) -> None:
    """Print what stands in the model folder.

    Raises:
        InputError: the folder holds no BERT that can be loaded; the texts cannot be read.
    """
    texts = None if config.input_file is None else list(given_texts([], config.input_file, example=""))
    findings = inspect_model(config.path, texts=texts, allow_bin=config.allow_bin)
    if config.json:
        console.result_json(_as_json(findings))
        return
    console.result(f"configuration:\n{console.table(_shape_rows(findings))}")
    console.result(f"tensors:\n{console.table(_tensor_rows(findings.report, every=config.show_tensors))}")
    console.result(f"parameters:\n{console.table(list(findings.parameters.items()))}")
    console.result(f"tokenizer:\n{console.table(findings.tokenizer)}")
    if findings.probes:
        console.result(f"masked-LM head, tokens hidden one at a time:\n{console.table(_probe_rows(findings.probes))}")
    for line in findings.remarks:
        console.result(line)


def inspect_model(path: str | Path, *, texts: list[str] | None = None, allow_bin: bool = False) -> Findings:
    """Return what stands in a model folder; texts: what its masked-LM head is tried on, None for SENTENCES.

    Raises:
        InputError: the folder holds no BERT that can be loaded.
    """
    from bertkit.model.architectures import TaskModel
    from bertkit.model.heads import PretrainingModel
    from bertkit.model.hub import model_directory
    from bertkit.model.pretrained import head_on_disk, load_with_report

    folder = model_directory(path, allow_pickle_weights=allow_bin)
    head = head_on_disk(folder, allow_pickle_weights=allow_bin)
    model, report = load_with_report(folder, head=head, allow_new_head=True, allow_pickle_weights=allow_bin)
    remarks = list(report.remarks)
    if report.newly_made:
        remarks.append(f"not in the file, and new at random here: {', '.join(report.newly_made)}")
    tokenizer, problem = _tokenizer_of(folder)
    rows: list[Row] = (
        [("tokenizer", problem)] if tokenizer is None else _tokenizer_rows(tokenizer, folder, model, remarks)
    )
    probes: dict[str, Probe] = {}
    if not isinstance(model, PretrainingModel) or model.mlm_head is None:
        remarks.append("there is no masked-LM head, so none was tried")
    elif tokenizer is not None and tokenizer.vocabulary.size <= model.config.vocab_size:
        given = SENTENCES if texts is None else {"the texts": tuple(texts)}
        probes = _probes(model, tokenizer, given, remarks)
    return Findings(
        head="none (an encoder alone)" if head is None else head,
        configuration=model.config.to_json(),
        labels=model.task.labels if isinstance(model, TaskModel) and head in LABELLED else (),
        report=report,
        parameters=_parameters(model),
        tokenizer=rows,
        probes=probes,
        remarks=remarks,
    )


def _parameters(model: "Model") -> dict[str, int]:
    counts: Counter[str] = Counter({"embeddings": 0, "layers": 0})
    for name, parameter in model.named_parameters():
        part = name.removeprefix("encoder.").split(".")[0]
        counts[part] += parameter.numel()
    return {**counts, "all": counts.total()}


def _tokenizer_of(folder: Path) -> tuple[Tokenizer | None, str]:
    """The tokenizer in a model folder, or why there is none."""
    from bertkit.model.foreign_folder import require_plain_tokenizer_files

    require_plain_tokenizer_files(folder)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return None, "none in the folder"
    try:
        return load_tokenizer(folder), ""
    except InputError as problem:
        return None, f"cannot be used: {problem.problem}"


def _tokenizer_rows(tokenizer: Tokenizer, folder: Path, model: "Model", remarks: list[str]) -> list[Row]:
    """What is known of a tokenizer; what does not fit the model is remarked."""
    vocabulary, config, entries = tokenizer.vocabulary, model.config, entries_of(tokenizer)
    spare = config.vocab_size - vocabulary.size
    if spare >= PADDED_TO:
        remarks.append(cut_short(vocabulary.size, config.vocab_size))
    if spare < 0:
        remarks.append(
            f"the tokenizer has {vocabulary.size:,} tokens and the model {config.vocab_size:,}: they do not belong "
            "together; copy both from one checkpoint"
        )
    if vocabulary.pad_id != config.pad_token_id:
        remarks.append(f"[PAD] has id {vocabulary.pad_id} in the tokenizer, pad_token_id is {config.pad_token_id}")
    if (folder / "tokenizer.json").is_file() and (folder / "vocab.txt").is_file():
        other = read_vocabulary(folder / "vocab.txt").tokens
        pairs = zip(vocabulary.tokens, other, strict=False)
        wrong = next((id for id, (a, b) in enumerate(pairs) if a != b), None)
        if wrong is not None:
            remarks.append(
                f"tokenizer.json and vocab.txt differ: id {wrong} is {vocabulary.tokens[wrong]!r} and {other[wrong]!r}"
            )
        elif len(other) != vocabulary.size:
            remarks.append(f"tokenizer.json has {vocabulary.size:,} tokens and vocab.txt {len(other):,}")
    if entries.do_lower_case and entries.num_capital:
        remarks.append(
            f"case mismatch: {entries.num_capital:,} entries have a capital letter, but do_lower_case is true, so that "
            "no text gives them"
        )
    if not entries.do_lower_case and not entries.num_capital and entries.num_ordinary > entries.num_chinese:
        remarks.append("no entry has a capital letter, but do_lower_case is false: capitals in a text become [UNK]")
    return [
        ("tokens", vocabulary.size),
        ("rows of the model without a token", max(0, spare)),
        (f"id of {MASK}", str(vocabulary.mask_id)),
        ("do_lower_case", str(entries.do_lower_case).lower()),
        ("entries with a capital letter", entries.num_capital),
        ("different Chinese characters", entries.num_chinese),
    ]


def _probes(
    model: Any, tokenizer: Tokenizer, given: dict[str, tuple[str, ...]], remarks: list[str]
) -> dict[str, "Probe"]:
    """What the head made of the texts of each language that the vocabulary is one for."""
    from bertkit.model.probe import probe_masked_lm

    vocabulary, probes = tokenizer.vocabulary, {}
    for language, texts in given.items():
        rows, unknown, number = [], 0, 0
        for text in texts:
            ids = tokenizer.encode(text).ids[: model.config.max_position_embeddings - 2]
            whole, _ = with_special_tokens(ids, None, vocabulary)
            rows.append((whole.tolist(), [1 + column for column, id in enumerate(ids) if vocabulary.ordinary[id]]))
            unknown, number = unknown + int((ids == vocabulary.unk_id).sum()), number + len(ids)
        if not any(columns for _, columns in rows) or unknown > MOST_UNKNOWN * number:
            share = unknown / max(1, number)
            remarks.append(f"the masked-LM head was not tried on {language}: {share:.0%} of the tokens are {UNK}")
        else:
            probes[language] = probe_masked_lm(model, rows, mask_id=vocabulary.mask_id)
    if probes and not any(probe.trained for probe in probes.values()):
        verdict = min(probes.values(), key=lambda probe: probe.loss).verdict
        remarks.append(f"the masked-LM head is {verdict}: it is untrained, or made for other ids or other text")
    return probes


def _shape_rows(findings: Findings) -> list[Row]:
    shown = {key: value for key, value in findings.configuration.items() if key != "model_type"}
    labels = [("labels", _named(findings.labels))] if findings.labels else []
    return [
        ("head", findings.head),
        *labels,
        *((key, value if type(value) is int else str(value)) for key, value in shown.items()),
    ]


def _named(labels: tuple[str, ...]) -> str:
    """Their number and the first of their names."""
    return f"{len(labels)}: {', '.join(labels[:SHOWN_LABELS])}" + (", …" if len(labels) > SHOWN_LABELS else "")


def _tensor_rows(report: "LoadReport", *, every: bool) -> list[Row]:
    fates = report.fates()
    if every:
        return list(fates.items())
    counts = Counter(fates.values())
    rows: list[Row] = [(fate, counts[fate]) for fate in ("loaded", "tied", "resized", "newly made", "ignored")]
    named = [(f"{fate}:", name) for name, fate in fates.items() if fate != "loaded"]
    unknown = [("key not read:", key) for key in report.unknown_config_keys]
    return [*rows, *named, *unknown]


def _probe_rows(probes: dict[str, "Probe"]) -> Iterator[Row]:
    for language, probe in probes.items():
        yield f"loss on {language}", f"{probe.loss:.3f} over {probe.num_tokens} tokens, {probe.accuracy:.1%} right"
        yield "loss of a guess, ln(vocabulary)", f"{probe.chance:.3f}"


def _as_json(findings: Findings) -> dict[str, Any]:
    return {
        "head": findings.head,
        "configuration": findings.configuration,
        "labels": list(findings.labels),
        "tensors": findings.report.fates(),
        "unknown_config_keys": findings.report.unknown_config_keys,
        "parameters": findings.parameters,
        "tokenizer": dict(findings.tokenizer),
        "probes": {name: {**asdict(probe), "trained": probe.trained} for name, probe in findings.probes.items()},
        "remarks": findings.remarks,
    }
