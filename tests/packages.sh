#!/usr/bin/env bash
# Builds the tarball and the Debian package for other machines, and uses the tarball where there is neither Rust nor a compiler, with an
# old glibc: in a root directory of the oldest Debian that this machine's mirror has. For AArch64, under emulation (qemu-user).
#
#     bash tests/packages.sh [--arch x86_64|aarch64] [--built DIR]
#
# DIR is where everything is built already for other machines. Without it this takes ten minutes and more. Needs Debian, and root or
# user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { echo "usage: tests/packages.sh [--arch x86_64|aarch64] [--built DIR]"; }
fail() {
    echo "tests/packages.sh: $*" >&2
    exit 1
}
step() { echo "tests/packages.sh: $((SECONDS / 60)) min $((SECONDS % 60)) s: $*"; }

machine=$(uname -m)
arch=$machine
built=()
while [ $# -gt 0 ]; do
    case $1 in
    --arch | --built)
        [ $# -ge 2 ] || { usage >&2; exit 2; }
        case $1 in
        --arch) arch=$2 ;;
        --built) built=(--built "$2") ;;
        esac
        shift 2
        ;;
    *) usage >&2; exit 2 ;;
    esac
done
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*) usage >&2; exit 2 ;;
esac
emulator=
if [ "$arch" != "$machine" ]; then
    emulator=qemu-$arch
    command -v "$emulator" >/dev/null || fail "$emulator is missing: apt-get install qemu-user"
fi

target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/packages-$arch
rm -rf "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/debs" "$work/root"

# Unpacks packages of a release of Debian into $work/root. Fails if the mirror does not have it.
unpack_debian() {
    local suite=$1 mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Component: main' 'Created-By: Packages' | head -n 1)
    [ -n "$mirror" ] || fail "apt knows no mirror of Debian: apt-get update"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/apt/sources.list"
    : >"$work/apt/status"
    local apt=(apt-get -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache"
        -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root
        -o APT::Architecture="$debian" -o APT::Architectures="$debian" -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false)
    "${apt[@]}" update 2>"$work/apt/errors" || return 1
    # Nothing but the C library and a shell: what Annals needs beyond these would be missed.
    (cd "$work/debs" && "${apt[@]}" download libc6 dash 2>>"$work/apt/errors") || return 1
    local package
    for package in "$work/debs"/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
}

step "an old Debian for $debian"
suite=
for release in buster bullseye bookworm; do
    if unpack_debian "$release"; then
        suite=$release
        break
    fi
    echo "tests/packages.sh: the mirror does not have $release"
done
[ -n "$suite" ] || fail "no old Debian is to be had: $(cat "$work/apt/errors")"
glibc=$(basename "$(echo "$work"/debs/libc6_*.deb)" | cut -d _ -f 2)
echo "tests/packages.sh: Debian $suite, glibc $glibc"

step "the tarball for $arch"
tarball=$(bash recorder/capi/tarball.sh --arch "$arch" "${built[@]}" --output "$work")
echo "tests/packages.sh: $(basename "$tarball"), $(du -m "$tarball" | cut -f 1) MB"
tar --extract --file "$tarball" --directory "$work/root"
# To another place than it was packed in.
mkdir "$work/root/moved"
mv "$work/root/$(basename "$tarball" .tar.gz)" "$work/root/moved/annals"

step "a program with functions, for glibc 2.28"
cat >"$work/program.c" <<'END'
#include <stdio.h>
int leaf(int n) { return n * 3 + 1; }
int sum(int n) {
    int total = 0;
    for (int i = 0; i < n; i++) total += leaf(i);
    return total;
}
int main(void) {
    printf("the sum is %d\n", sum(1000));
    return 0;
}
END
# By the zig that builds Annals, wherever annals_cargo.py has installed it.
python=$target/zig/bin/python
[ -x "$python" ] || python=python3
"$python" -m ziglang cc -target "$arch-linux-gnu.2.28" -O1 -fno-inline -fno-sanitize=all -finstrument-functions \
    "$work/program.c" -o "$work/root/program"

# Runs a script of the old system's shell. No other program is there.
inside() {
    local namespaces=(unshare --mount)
    [ "$(id -u)" -eq 0 ] || namespaces=(unshare --mount --map-root-user)
    mkdir -p "$work/root/proc" "$work/root/dev" "$work/root/tmp"
    "${namespaces[@]}" env -i PATH=/moved/annals/bin HOME=/tmp ANNALS_ROOT="$work/root" /bin/sh -c '
        /bin/mount --rbind /proc "$ANNALS_ROOT/proc" && /bin/mount --rbind /dev "$ANNALS_ROOT/dev" &&
        exec /usr/sbin/chroot "$ANNALS_ROOT" /bin/sh -c "unset ANNALS_ROOT; cd /tmp; $1"' sh "$1"
}
# Runs a program of the root under emulation; libraries are those of the root.
emulated() { "$emulator" -L "$work/root" "$work/root/$1" "${@:2}"; }

step "recorded, merged and read"
if [ -z "$emulator" ]; then
    inside "for missing in cc gcc c++ cargo rustc python3 ls; do
        if command -v \$missing; then echo \"\$missing is there\"; exit 1; fi
    done; echo 'no compiler, no Rust'" | tee "$work/printed"
    inside "set -e
        trace-cli --version
        trace-cli record -o run -- /program
        trace-merge run -o run.annals
        trace-cli regions run.annals" 2>&1 | tee -a "$work/printed"
else
    # An emulated trace-cli cannot start an emulated program, because this machine does not know its format: the loader is asked for
    # the library as trace-cli would ask.
    {
        emulated moved/annals/bin/trace-cli --version
        "$emulator" -L "$work/root" -E "LD_PRELOAD=$work/root/moved/annals/lib/libannals_mpi.so" -E "ANNALS_DIR=$work/root/tmp/run" \
            "$work/root/program"
        emulated moved/annals/bin/trace-merge "$work/root/tmp/run" -o "$work/root/tmp/run.annals"
        emulated moved/annals/bin/trace-cli regions "$work/root/tmp/run.annals"
    } 2>&1 | tee "$work/printed"
fi
grep -q "the sum is 1499500" "$work/printed" || fail "the program did not run"
grep -Eq '^leaf +1,000 ' "$work/printed" || fail "1,000 calls of leaf are expected"

step "the Debian package for $debian"
package=$(bash recorder/capi/deb.sh --arch "$debian" "${built[@]}")
fields=$(dpkg-deb --field "$package" Architecture Depends)
echo "$(basename "$package"), $(du -m "$package" | cut -f 1) MB: $fields"
grep -qx "Architecture: $debian" <<<"$fields" || fail "the package is not for $debian"
grep -qx "Depends: libc6 (>= 2.28)" <<<"$fields" || fail "the package does not depend on glibc 2.28 alone"
step "all passed"
