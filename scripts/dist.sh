#!/usr/bin/env bash
# Builds wheel and sdist in dist/, looks into them, and tries the wheel in an empty environment.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
export SOURCE_DATE_EPOCH=1600000000 # the same bytes whenever it is built

rm -rf dist
"$python" -m build --outdir dist . >"$scratch/log" || { cat "$scratch/log"; exit 1; }
"$python" -m build --wheel --outdir "$scratch/direct" . >"$scratch/log" || { cat "$scratch/log"; exit 1; }
wheel="$(echo dist/*.whl)"
cmp "$wheel" "$scratch"/direct/*.whl # the sdist builds the wheel that the repository does

"$python" -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}' | sort >"$scratch/packed"
# All of the package, templates included, and nothing but the package.
(find graphrelu -type f -not -path '*__pycache__*') | sort >"$scratch/source"
diff "$scratch/source" <(grep -v dist-info "$scratch/packed")
if tar -tf dist/*.tar.gz | grep -E '/(results|tests|benchmarks/results|site)/'; then
    echo "The sdist holds what nobody installs." >&2
    exit 1
fi

# On a package index, links into the repository would lead nowhere.
"$python" -m zipfile -e "$wheel" "$scratch/unpacked"
if grep -E '\]\((docs|results|examples)/' "$scratch"/unpacked/*.dist-info/METADATA; then exit 1; fi

"$python" -m venv "$scratch/venv"
bin="$scratch/venv/bin"
pip=("$bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt)
"${pip[@]}" torch
"${pip[@]}" "$wheel"
cd "$scratch" # away from the sources
PYTHONWARNINGS=ignore "$bin/python" - <<'PYTHON'
import graphrelu, torch

assert "site-packages" in graphrelu.__file__, graphrelu.__file__
x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
assert torch.equal(graphrelu.GReLU(16)(x, edge_index), x.relu())
PYTHON
code=0
"$bin/graphrelu" --help 2>"$scratch/said" || code=$?
[ "$code" = 2 ] && grep -q 'pip install "graphrelu\[lab\]"' "$scratch/said"

cd - >/dev/null
"${pip[@]}" "$wheel[lab]"
"$bin/python" -m pip check
cd "$scratch"
"$bin/graphrelu" --help >/dev/null
"$bin/graphrelu" compare --activations relu,grelu --runs 2 --epochs 4 --report page.html
grep -q '<svg\|<canvas\|<script' page.html
echo "$(basename "$wheel") installs and runs; $(wc -l <"$scratch/source") files."
