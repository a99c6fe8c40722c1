"""Options of tasks: what belongs to another task, or does nothing beside the rest, is refused by name."""

import subprocess
import sys
from typing import Any, get_args

import pytest

from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError, InputErrors
from bertkit.options import options_of, values_of
from bertkit.tasks.task_settings import KNOWN_BY, NEEDS, TEXTS, Knowledge, TaskName, TaskSettings, require_known

TASKS = get_args(TaskName)
# Of every option that is not every task's: a value other than its default.
OTHER: dict[str, Any] = {
    **{"stride": 8, "long_texts": "windows", "vote": "max", "pooling": "cls", "class_weights": "auto"},
    **{"label_smoothing": 0.1, "constrained_decoding": False, "doc_stride": 8, "max_query_length": 8},
    **{"n_best_size": 3, "max_answer_length": 5, "null_score_diff_threshold": 0.5, "text_pair_column": "b"},
    **{"label_column": "y", "pair_separator": "|", "separator": ";", "tag_column": "t", "choice_columns": "a,b"},
    **{"context": "startphrase", "scheme": "IOB1", "repair_tags": True, "problem_type": "regression"},
    **{"repair_offsets": True, "on_bad_answers": "drop"},
}


def settings_with(name: str) -> TaskSettings | ReadingSettings:
    beside = {"long_texts": "windows"} if name in NEEDS else {}
    if name in values_of(TaskSettings()):
        return TaskSettings(**{**beside, name: OTHER[name]})
    return ReadingSettings(**{name: OTHER[name]})


def test_the_table_names_options_that_there_are_and_tasks_that_there_are() -> None:
    names = {option.name for kind in (TaskSettings, ReadingSettings) for option in options_of(kind)}
    assert set(KNOWN_BY) == set(OTHER) <= names
    assert all(set(tasks) < set(TASKS) for tasks in KNOWN_BY.values())
    assert names - set(KNOWN_BY) == {
        *("max_seq_length", "layers", "combine", "text_column", "column_names", "on_bad", "encoding"),
    }


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", OTHER)
def test_an_option_of_other_tasks_is_refused_with_these(task: TaskName, name: str) -> None:
    if task in KNOWN_BY[name]:
        if not (task != TEXTS and name in NEEDS):  # whose companion is of texts alone
            require_known(task, settings_with(name))
        return
    known = ", ".join(KNOWN_BY[name])
    with pytest.raises(InputErrors, match=rf"--{name}: is no option of {task}\n  value: .*\n  expected: it .* {known}"):
        require_known(task, settings_with(name))


def test_all_foreign_options_are_said_at_once() -> None:
    with pytest.raises(InputErrors, match="3 of 3 problems shown"):
        require_known("multiple-choice", TaskSettings(doc_stride=8, stride=4), ReadingSettings(scheme="IOB1"))


@pytest.mark.parametrize("given", [{"stride": 8}, {"vote": "max"}])
def test_what_is_about_windows_is_refused_without_them(given: dict[str, Any]) -> None:
    with pytest.raises(InputErrors, match=r"has no effect with --long_texts cut\n.*\n  expected: --long_texts windows"):
        require_known("sequence-classification", TaskSettings(**given))
    require_known("sequence-classification", TaskSettings(long_texts="windows", **given))
    if "stride" in given:
        require_known("token-classification", TaskSettings(**given))


def test_options_are_known_without_torch() -> None:
    code = "import sys, bertkit.tasks.task_settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_scheme_that_is_none_is_no_knowledge() -> None:
    with pytest.raises(InputError, match=r"scheme: is no scheme\n  value: 'BIO'\n  expected: IOB1 \| IOB2"):
        Knowledge(scheme="BIO")  # type: ignore[arg-type]
