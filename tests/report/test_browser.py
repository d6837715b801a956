"""The page in a real browser: nothing overflows, nothing overlaps, the console stays silent."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gdp.report.page import page
from tests.report.example_page import example

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

MEASURE = """
<script>
const box = e => e.getBoundingClientRect();
const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
const shown = e => box(e).width > 0;
const among = list => { let n = 0; list.forEach((a, i) => list.slice(i + 1).forEach(b => { if (meets(box(a), box(b))) n++; })); return n; };
const of = (root, selector) => [...root.querySelectorAll(selector)].filter(shown);
const found = {
  width: innerWidth,
  overflow: document.documentElement.scrollWidth - innerWidth,
  drawings: of(document, 'svg').length,
  empty: [...document.querySelectorAll('svg')].filter(e => !box(e).width || !e.children.length).length,
  ticks: [...document.querySelectorAll('svg')].reduce((n, e) => n + among(of(e, ':scope > .tick')), 0),
  labels: [...document.querySelectorAll('.ends')].reduce((n, e) => n + among(of(e, '.level-name')), 0),
  lanes: [...document.querySelectorAll('.lane')].filter(e => { const [a, b] = [...e.children].map(box); return a.width && meets(a, b); }).length,
};
document.body.dataset.found = JSON.stringify(found);
</script>
"""


def in_browser(path: Path, *, width: int) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    profile = path.with_suffix(f".{width}.profile")
    return subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--enable-logging=stderr",
            f"--window-size={width},2000", "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; tests/browser.sh installs one")
def test_the_page_is_drawn_whole_at_both_widths(tmp_path: Path) -> None:
    source = page(example())
    plain = tmp_path / "plain.html"
    plain.write_text(source, encoding="utf-8")
    seen = in_browser(plain, width=1400)
    assert "CONSOLE" not in seen.stderr, seen.stderr
    assert seen.stdout.count("<figure") == source.count("<figure") >= 8

    measured = tmp_path / "measured.html"
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", source)
    measured.write_text(free.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    for width in (1400, 500):
        found = json.loads(re.search(r'data-found="([^"]*)"', in_browser(measured, width=width).stdout)[1].replace("&quot;", '"'))
        assert found["overflow"] <= 0, found
        assert found["drawings"] > 40 and found["empty"] == 0, found
        assert (found["ticks"], found["labels"], found["lanes"]) == (0, 0, 0), found


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; tests/browser.sh installs one")
def test_the_page_forbids_scripts(tmp_path: Path) -> None:
    path = tmp_path / "script.html"
    path.write_text(page(example()).replace("</body>", "<script>document.body.dataset.ran = 'yes'</script></body>"), encoding="utf-8")
    seen = in_browser(path, width=1400)
    assert 'data-ran="yes"' not in seen.stdout
    assert "CONSOLE" in seen.stderr
