#!/usr/bin/env bash
# Sets up what the tests need, then passes them all. Runs without input on a fresh Debian or Ubuntu
# machine with Rust and a C compiler. Set ANNALS_KILLS for more (or fewer) than 200 kills.
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

# The first of the README's two commands, as a user runs it.
demo=target/readme-demo
rm -rf "$demo"
cargo run --release -p annals-cli -- demo --output "$demo"

cargo test --workspace
