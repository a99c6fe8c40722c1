"""The page: one file, nothing from outside, no text that becomes markup or script."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from page_outline import PAYLOADS, outline_of
from sample_run import write_sample_run

from bertkit.report import frame, page
from bertkit.report.record import read_record

pytest.importorskip("plotly", reason='the report needs the extra "report"')


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = page.write_report(write_sample_run(tmp_path_factory.mktemp("runs") / "宋词"))
    assert path is not None
    return path.read_text(encoding="utf-8")


def test_the_page_is_one_file_in_the_run(tmp_path: Path) -> None:
    run = write_sample_run(tmp_path)
    before = {path.name for path in run.iterdir()}
    assert page.write_report(run) == run / "report.html"
    assert {path.name for path in run.iterdir()} - before == {"report.html"}


def test_the_page_is_the_same_every_time(html: str, tmp_path: Path) -> None:
    assert page.page_html(read_record(write_sample_run(tmp_path / "宋词"))) == html


def test_results_charts_samples_and_settings_are_there(html: str) -> None:
    text = outline_of(html).text
    for part in ("BERT pre-training: 宋词", "4,385,920", "3 min 41 s", "Unigram baseline", "掩码词元准确率"):
        assert part in text
    for part in ("Losses", "Learning rate", "Filled masks over time", "Settings of the run", "whole_word", "Versions"):
        assert part in text
    assert "bertkit pretrain --data_dir store --output_dir runs/宋词" in text


def test_the_results_are_those_of_the_files(html: str, tmp_path: Path) -> None:
    results = json.loads((write_sample_run(tmp_path) / "eval_results.json").read_text(encoding="utf-8"))
    text = outline_of(html).text
    assert f"{results['masked_lm_accuracy']:.1%}" in text
    assert f"{results['masked_lm_loss']:.4f}" in text
    assert f"{results['next_sentence_accuracy']:.1%}" in text


def test_a_run_that_goes_on_shows_its_last_evaluation(tmp_path: Path) -> None:
    record = read_record(write_sample_run(tmp_path, ended=False))
    text = outline_of(page.page_html(record)).text
    assert f"{record.validation[-1]['mlm_accuracy']:.1%}" in text
    assert "the run has not ended" in text


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    text = outline_of(page.page_html(read_record(tmp_path))).text
    assert "Nothing has been measured yet." in text
    assert "run.json holds no settings." in text


def test_nothing_is_fetched_from_anywhere(html: str) -> None:
    for tag, attributes in outline_of(html).elements:
        assert tag not in ("iframe", "object", "embed", "img", "base", "form"), tag
        assert not attributes.get("src"), (tag, attributes)
        assert attributes.get("href", "data:,") == "data:,"
    assert "@import" not in frame.STYLE
    assert "url(" not in frame.STYLE


def test_the_policy_allows_only_the_scripts_of_the_page(html: str) -> None:
    outline = outline_of(html)
    (policy,) = [a["content"] for tag, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert set(directives) == {"default-src", "script-src", "img-src", "style-src"}
    figures, *scripts = outline.scripts
    assert json.loads(figures).keys() == {"mlm_accuracy", "nsp_accuracy", "losses", "learning_rate"}
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert directives["script-src"] == " ".join(f"'sha256-{value}'" for value in hashes)


def test_the_page_names_its_language_and_encoding(html: str) -> None:
    elements = outline_of(html).elements
    assert elements[0] == ("html", {"lang": "en"})
    assert ("meta", {"charset": "utf-8"}) in elements
    assert any(a.get("lang") == "zh" for _, a in elements)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_run_becomes_markup(tmp_path: Path, payload: str) -> None:
    record = read_record(write_sample_run(tmp_path / "run"))
    plain = outline_of(page.page_html(record))
    sample = {"original": payload, "masked": f"{payload}[MASK]", "filled": f"{payload}{payload}"}
    changed = replace(
        record,
        name=payload,
        samples=[*record.samples, {"step": 500, "samples": [sample]}],
        run=record.run | {"command": payload, "settings": {payload: payload}, payload: [payload]},
        notes=[payload],
    )
    outline = outline_of(page.page_html(changed))
    allowed = {"p", "table", "tr", "th", "td", "mark", "caption", "details", "summary", "code"}
    kinds = {tag for tag, _ in outline.elements}
    assert kinds - allowed == {tag for tag, _ in plain.elements} - allowed
    assert sum(tag == "script" for tag, _ in outline.elements) == 3
    assert not any(name.startswith("on") for _, attributes in outline.elements for name in attributes)
    assert payload.replace("\x00", "\ufffd") in outline.text or payload in outline.text


def test_no_text_ends_the_data_block() -> None:
    text = frame.json_for_script({"</script><!--": "明月&<\u2028"})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"</script><!--": "明月&<\u2028"}


def test_thinned_curves_are_said(tmp_path: Path) -> None:
    record = read_record(write_sample_run(tmp_path))
    rows = [{"step": step, "mlm_loss": 1.0} for step in range(5000)]
    text = outline_of(page.page_html(replace(record, train=rows))).text
    assert "The curves show 2,000 of 5,000 training points, evenly spaced." in text


def test_without_plotly_there_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    assert not page.plotly_is_installed()
    assert page.write_report(write_sample_run(tmp_path)) is None
    assert not (tmp_path / "report.html").exists()
