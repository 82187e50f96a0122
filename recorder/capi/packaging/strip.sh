#!/usr/bin/env bash
# Strips files of any processor in place, with the options that `strip` has, too: --strip-all, --strip-unneeded, --strip-debug. By LLVM's
# objcopy: that of PATH, or Rust's, which is part of every toolchain but does not find its own library.
set -euo pipefail

if command -v llvm-objcopy >/dev/null; then
    exec llvm-objcopy "$@"
fi
sysroot=$(rustc --print sysroot)
host=$(rustc -vV | sed -n 's/^host: //p')
objcopy=$sysroot/lib/rustlib/$host/bin/rust-objcopy
[ -x "$objcopy" ] || {
    echo "strip.sh: no program strips files of another processor: install llvm (llvm-objcopy)" >&2
    exit 1
}
LD_LIBRARY_PATH=$sysroot/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$objcopy" "$@"
