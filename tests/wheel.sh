#!/usr/bin/env bash
# Builds the wheel and uses it where there is no checkout: tests/wheel.sh PYTHON [--full]
#
# PYTHON has `build` and `hatchling`, and gdp's dependencies. The wheel alone is installed into a fresh environment that borrows those dependencies;
# with --full they are installed anew, as a user would have them.
set -euo pipefail

python=${1:?usage: tests/wheel.sh PYTHON [--full]}
full=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

"$python" -m build --wheel --no-isolation --outdir "$temporary/dist" "$root" >"$temporary/build.log" 2>&1 || { cat "$temporary/build.log"; exit 1; }
wheel=$(echo "$temporary"/dist/*.whl)
"$python" -m venv "$temporary/env"
fresh=$temporary/env/bin/python
if [ "$full" = --full ]; then
  "$fresh" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "$wheel"
else
  "$fresh" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$wheel"
  # A .pth file in a folder that a .pth file adds is not read: an editable gdp beside the borrowed packages stays out.
  "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$fresh" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
fi

mkdir "$temporary/elsewhere"
cd "$temporary/elsewhere"
unset PYTHONPATH
export HF_HUB_OFFLINE=1
where=$("$fresh" -c 'import gdp; print(gdp.__file__)')
case $where in
  "$temporary"/env/*) ;;
  *) echo "the wheel's gdp is shadowed by $where"; exit 1 ;;
esac
"$fresh" -c '
from gdp.bundled import bundled
for folder in ("conf", "checkpoints", "datasets"):
    assert any(bundled(folder).iterdir()), f"{folder} is empty in the wheel"
from gdp.report.page import page
from gdp.report import ReportData
assert "prefers-color-scheme" in page(ReportData(title="wheel", sections=(), environment={}))
'
"$temporary/env/bin/gdp" --help >/dev/null
"$temporary/env/bin/gdp" place inception-v3-training --cluster p100x4 --policy gdp-tiny --out out >place.log 2>&1 || { cat place.log; exit 1; }
test -s out/placement.json || { echo "gdp place wrote no placement.json"; ls -R out; exit 1; }
echo "wheel: $(basename "$wheel"), $(stat -c %s "$wheel") bytes, works from an empty folder"
