"""A checkpoint is safetensors and JSON: saving, finding and resuming unpickle, compile and run nothing."""

from pathlib import Path

from processes import Forge, ended


def test_saving_finding_and_resuming_run_no_code(forge: Forge, tmp_path: Path) -> None:
    """Promise C4."""
    process = forge.begin([tmp_path], tmp_path / "output", target="toy_saves:saves_under_an_audit")
    with ended(process):
        assert process.wait(20) == 0, process.said()
    assert process.said() == "step-9: {'pickle.find_class': 0, 'exec': 0, 'compile': 0}\n"
