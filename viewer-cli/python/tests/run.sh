#!/usr/bin/env bash
# Builds the wheel and passes the tests of the Python package. TESTS_BUILT_IN is Cargo's directory where everything is built
# already, if it is. ANNALS_LONG=1 also builds the wheel for other machines, which takes some ten minutes, and checks it; and reads
# datasets with Spark, which needs 400 MB and Java.
# Environments for Python are kept below target/.
set -euo pipefail
cd "$(dirname "$0")/../../.."

step() {
    echo "viewer-cli/python/tests/run.sh: $((SECONDS / 60)) min $((SECONDS % 60)) s: $*"
}

# Pythons that can run, newest first: of PATH, or those that pyenv has.
pythons=()
absent=()
for version in 3.13 3.12 3.11 3.10; do
    found=
    for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python python3; do
        works=$("$python" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        [ "$works" = "$version" ] && found=$python && break
    done
    if [ -n "$found" ]; then pythons+=("$found"); else absent+=("$version"); fi
done
if [ ${#pythons[@]} -eq 0 ]; then
    echo "viewer-cli/python/tests/run.sh: no Python from 3.10 to 3.13 with venv: install python3 and python3-venv" >&2
    exit 1
fi
[ ${#absent[@]} -eq 0 ] || echo "viewer-cli/python/tests/run.sh: NOT TESTED: Python ${absent[*]} (not on PATH, nor in pyenv)"

# What builds and tests. The list is its version: another one is installed anew.
needed='maturin>=1.9,<2 numpy pandas polars duckdb pyarrow pytest nbclient nbformat ipykernel otf2 mpich mpi4py distributed mypy'
[ "${ANNALS_LONG:-}" != 1 ] || needed="$needed pyspark dask[dataframe]"
if [ "$(cat target/python/needed 2>/dev/null)" != "${pythons[0]} $needed" ]; then
    step "environment of ${pythons[0]}"
    rm -rf target/python
    "${pythons[0]}" -m venv target/python
    # shellcheck disable=SC2086
    (set -f && target/python/bin/pip install --quiet $needed)
    echo "${pythons[0]} $needed" >target/python/needed
fi
python=$PWD/target/python/bin/python
export PATH="$PWD/target/python/bin:$PATH"

step "the wheel"
# By maturin of this environment, not by one that pip installs for each build.
rm -rf target/python-wheel
ANNALS_WHEEL_PROFILE=dev ANNALS_WHEEL_BUILT=${TESTS_BUILT_IN:-} "$python" -m pip wheel --quiet --no-build-isolation --no-deps \
    --wheel-dir target/python-wheel ./viewer-cli/python
wheel=$(echo target/python-wheel/annals_trace-*.whl)
"$python" viewer-cli/python/tests/check_wheel.py "$wheel"
"$python" -m pip install --quiet --no-deps --force-reinstall "$wheel"

step "fresh environments"
"$python" viewer-cli/python/tests/fresh.py "$wheel" target/python-fresh "${pythons[@]}"

step "types"
"$python" -m mypy --strict --ignore-missing-imports viewer-cli/python/annals_trace

step "pytest"
# Reasons of tests that are skipped are printed. From here, so that the tests import the package that is installed, not its source.
"$python" -m pytest --quiet -r s -p no:cacheprovider viewer-cli/python/tests

if [ "${ANNALS_LONG:-}" = 1 ]; then
    step "the wheel for other machines"
    rm -rf target/python-wheel-zig
    ANNALS_WHEEL_ZIG=1 "$python" -m pip wheel --quiet --no-deps --wheel-dir target/python-wheel-zig ./viewer-cli/python
    "$python" viewer-cli/python/tests/check_wheel.py target/python-wheel-zig/annals_trace-*.whl
    "$python" viewer-cli/python/tests/fresh.py target/python-wheel-zig/annals_trace-*.whl target/python-fresh "${pythons[@]}"
fi
step "all passed"
