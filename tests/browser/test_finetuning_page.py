"""The page of a fine-tuning run in a real browser: drawn, marked, offline, and deaf to what stands in the data."""

import pytest
from browser_visit import BROWSER, Visit, visit
from sample_finetuning import write_finetuning_run
from sample_run import HOSTILE

from bertkit.report.page import write_report

pytest.importorskip("plotly", reason='the report needs the extra "report"')
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    folder = tmp_path_factory.mktemp("browser")
    path = write_report(write_finetuning_run(folder / "run", "sequence-classification", text=HOSTILE))
    assert path is not None
    return visit(path, folder)


def test_the_curves_are_drawn(visited: Visit) -> None:
    for chart in ("held_out", "losses", "learning_rate"):
        start = visited.dom.index(f'id="chart-{chart}"')
        assert 'class="js-line"' in visited.dom[start : visited.dom.index("</section>", start)]


def test_nothing_from_the_data_runs_and_nothing_leaves(visited: Visit) -> None:
    assert "<title>BERT fine-tuning, sequence-classification: run</title>" in visited.dom
    assert "onerror=alert" in visited.dom  # it is shown, as text
    assert visited.asked == []
