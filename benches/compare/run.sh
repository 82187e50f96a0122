#!/usr/bin/env bash
# Installs what the rivals need (Debian, Ubuntu), builds, and measures. Arguments go to the bench; with
# --merging as the first, to the one of merging (with OTF2's global reader and babeltrace2); with --archives, to the one
# of OTF2 archives (with the reference library).
set -euo pipefail
cd "$(dirname "$0")"
bench=compare
if [ "${1:-}" = --merging ]; then
    bench=merging
    shift
elif [ "${1:-}" = --archives ]; then
    bench=archives
    shift
fi

packages=(g++ pkg-config libopen-trace-format2-dev liblttng-ust-dev lttng-tools babeltrace2)
missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
        missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    echo "installing ${missing[*]}" >&2
    {
        "${sudo[@]}" apt-get update
        # One by one: a rival that is not available is reported by the bench, and the others are still measured.
        for package in "${missing[@]}"; do
            "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes \
                --no-install-recommends "$package" || echo "$package cannot be installed" >&2
        done
    } >&2
fi

# A rival whose crate does not compile here is left out; the bench names it.
for features in tracy,fastrace,tracing fastrace,tracing tracing fastrace tracy ""; do
    if cargo build --release --no-default-features --features "$features" >&2; then
        exec cargo run --quiet --release --no-default-features --features "$features" \
            --bin "$bench" -- "$@"
    fi
    echo "the build with the features '$features' failed; trying with fewer" >&2
done
exit 1
