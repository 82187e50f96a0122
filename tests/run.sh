#!/usr/bin/env bash
# Sets up what the tests need, then passes them all. Runs without input on a fresh Debian or Ubuntu
# machine with Rust and a C compiler. Set ANNALS_KILLS for more (or fewer) than 300 kills,
# and ANNALS_LONG=1 for long storms of threads and signals, damage to every byte, and packages for other machines.
#
#   bash tests/run.sh --quick [COMMIT]
#
# passes those that take minutes after a build: structure, words, SPEC, and the unit tests of the crates in which files differ from
# COMMIT (without it, from the commit before). Installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

need() {
    command -v "$1" >/dev/null || {
        echo "tests/run.sh: $1 is missing: $2" >&2
        exit 1
    }
}
need cargo "install Rust 1.93 or newer"
need cc "install a C compiler (Debian: apt-get install gcc)"

# Begins a part. Prints how long the one before it took.
part=
begun=0
step() {
    [ -z "$part" ] || echo "tests/run.sh: $((SECONDS - begun)) s: $part"
    part=$1
    begun=$SECONDS
}

if [ "${1:-}" = --quick ]; then
    changed=$(git diff --name-only "${2:-HEAD~1}" && git ls-files --others --exclude-standard)
    crates=$(while read -r file; do
        case $file in benches/compare/* | tests/fuzz/*) continue ;; esac # Not of the workspace.
        directory=$(dirname "$file")
        until [ -f "$directory/Cargo.toml" ]; do directory=$(dirname "$directory"); done
        sed -n '/^name = "annals\|^name = "libannals/{s/name = "\(.*\)"/\1/p;q}' "$directory/Cargo.toml"
    done <<<"$changed" | sort -u)
    step "structure, words, SPEC"
    cargo test --quiet -p annals --test structure --test words --test spec
    for crate in $crates; do
        [ "$crate" = annals ] && continue
        step "unit tests of $crate"
        cargo test --quiet -p "$crate" --lib
    done
    step ""
    exit
elif [ $# -ne 0 ]; then
    echo "usage: tests/run.sh [--quick [COMMIT]]" >&2
    exit 2
fi

# Installs Debian packages that are not there yet.
install() {
    local missing=()
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null |
            grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "tests/run.sh: installing ${missing[*]}"
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        "${missing[@]}"
}
install strace g++ clang pkg-config binutils uftrace tmux python3-venv graphviz otf2-tools libopen-trace-format2-dev \
    eztrace gfortran openmpi-bin libopenmpi-dev mpich libmpich-dev slurm-wlm munge

# Open MPI and MPICH with mpi4py, each in a separate directory.
for mpi in openmpi mpich; do
    [ -x "target/mpi/$mpi/bin/mpirun" ] && "target/mpi/$mpi/bin/python" -c 'import mpi4py' && continue
    rm -rf "target/mpi/$mpi"
    python3 -m venv "target/mpi/$mpi"
    "target/mpi/$mpi/bin/pip" install --quiet "$mpi" mpi4py
done

# mpi4py's own tests, of the version that is installed.
if ! [ -f target/mpi/mpi4py/test/main.py ]; then
    version=$(target/mpi/mpich/bin/python -c 'import mpi4py; print(mpi4py.__version__)')
    rm -rf target/mpi/mpi4py target/mpi/mpi4py.new
    mkdir -p target/mpi/mpi4py.new
    target/mpi/mpich/bin/pip download --quiet --no-deps --no-binary mpi4py \
        --dest target/mpi/mpi4py.new "mpi4py==$version"
    tar -xzf target/mpi/mpi4py.new/mpi4py-*.tar.gz -C target/mpi/mpi4py.new --strip-components 1
    mv target/mpi/mpi4py.new target/mpi/mpi4py
fi

# LLVM's runtimes of OpenMP: two versions, which Debian installs one at a time.
for version in 14 19; do
    [ -d "target/libomp/$version" ] && continue
    rm -rf target/libomp/new
    mkdir -p target/libomp/new/root target/libomp/include
    (cd target/libomp/new && apt-get download --quiet "libomp5-$version" "libomp-$version-dev")
    for package in target/libomp/new/*.deb; do dpkg-deb -x "$package" target/libomp/new/root; done
    # The newer headers are those of both.
    find target/libomp/new/root \( -name omp.h -o -name omp-tools.h \) -exec cp {} target/libomp/include/ \;
    mv target/libomp/new/root "target/libomp/$version"
    rm -rf target/libomp/new
done

# Debian's Kokkos, without the rest of Trilinos; NumPy with an OpenBLAS that has OpenMP, and a program that has it.
for packages in "kokkos libtrilinos-kokkos-dev libtrilinos-kokkos-13.2" \
    "numpy python3-numpy libopenblas0-openmp clustalo libargtable2-0"; do
    set -- $packages
    [ -d "target/$1" ] && continue
    rm -rf "target/$1.new"
    mkdir -p "target/$1.new"
    (cd "target/$1.new" && apt-get download --quiet "${@:2}")
    for package in "target/$1.new"/*.deb; do dpkg-deb -x "$package" "target/$1.new"; done
    rm "target/$1.new"/*.deb
    mv "target/$1.new" "target/$1"
done

# The Python reader of OTF2 archives.
if ! [ -x target/otf2-python/bin/python ]; then
    python3 -m venv target/otf2-python
    target/otf2-python/bin/pip install --quiet otf2
fi

# Spark reads what is exported.
[ "${ANNALS_LONG:-}" != 1 ] || command -v java >/dev/null || install default-jre-headless

# Other readers of what is exported.
if ! [ -x target/export-python/bin/python ]; then
    python3 -m venv target/export-python
    target/export-python/bin/pip install --quiet perfetto protobuf pyarrow duckdb polars ||
        { rm -rf target/export-python; exit 1; }
fi

# A browser opens the pages of `trace-cli report`; Node.js drives it. Another Node.js than Debian's will do as well.
install chromium
command -v node >/dev/null || install nodejs
command -v npm >/dev/null || install npm
if ! cmp --silent tests/browser/package-lock.json target/browser/package-lock.json; then
    mkdir -p target/browser
    cp tests/browser/package.json target/browser/
    # Without scripts: no package may run anything here. The lock file is copied when all is installed.
    cp tests/browser/package-lock.json target/browser/npm-shrinkwrap.json
    (cd target/browser && npm ci --ignore-scripts --no-audit --no-fund)
    mv target/browser/npm-shrinkwrap.json target/browser/package-lock.json
fi

# Programs built from source, with pinned versions. Their speed does not matter.
tool() {
    [ "$(cat "target/tools/$1.version" 2>/dev/null)" = "$2" ] && return
    CARGO_TARGET_DIR=target/tools/build cargo install --quiet --locked --debug --force --root target/tools \
        --no-default-features --version "$2" "$1"
    rm -rf target/tools/build
    echo "$2" >"target/tools/$1.version"
}
step "tools"
tool mdbook 0.5.4

step "the README's first command"
# The first of the README's two commands, as a user runs it.
demo=target/readme-demo
rm -rf "$demo"
cargo demo --output "$demo"

step "the workspace"
# Everything once, with the features that tests turn on; what tests install is taken from there.
cargo build --workspace --lib --bins --examples --tests
step "its tests"
# What hangs is a failure that says where.
TESTS_BUILT_IN="$PWD/target/debug" timeout --foreground 45m cargo test --workspace --no-fail-fast
# Gigabytes of recordings and installed copies, which only a failed test needs.
rm -rf target/tmp

step "jobs under Slurm"
TESTS_BUILT_IN="$PWD/target/debug" bash tests/jobs.sh

step "the Python package"
# A wheel of what is built, in fresh environments and in one with everything that reads tables.
TESTS_BUILT_IN="$PWD/target/debug" bash viewer-cli/python/tests/run.sh

if [ "${ANNALS_LONG:-}" = 1 ]; then
    step "packages for other machines"
    bash tests/packages.sh
    if [ -n "$(find "$(rustc --print target-libdir --target aarch64-unknown-linux-gnu)" -name 'libstd-*' 2>/dev/null)" ]; then
        install qemu-user
        bash tests/packages.sh --arch aarch64
    else
        echo "tests/run.sh: NOT TESTED: packages for AArch64 (Rust's standard library for it is missing)"
    fi
fi

step "the macros, removed"
cargo test -p annals-recorder --lib --features off global

step "protocols between threads, in every interleaving"
# The recorder's own protocols between threads, in every interleaving.
CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" \
    cargo test --release -p annals-recorder --lib models

step "the other processor"
# The parts that run in other people's programs, on the other processor: built, and tested under
# emulation.
arm=aarch64-unknown-linux-gnu
if command -v rustup >/dev/null && rustup target add "$arm"; then
    install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
        cargo test --target "$arm" -p annals-format -p annals-recorder --lib
else
    echo "tests/run.sh: NOT TESTED: $arm (rustup cannot add that target here)"
fi
step "all passed"
step ""
