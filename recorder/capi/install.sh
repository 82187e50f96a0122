#!/usr/bin/env bash
# Installs Annals below a prefix: bin/trace-cli and its second name bin/trace-merge, lib/libannals.so and .a,
# lib/libannals_instrument.so and libannals_mpi.so, include/annals.h, annals_t.h and annals.hpp, lib/pkgconfig/annals.pc,
# manual pages and shell completions. Builds first what is not built yet.
set -euo pipefail

usage() {
    echo "usage: install.sh [--prefix DIR] [--optimize | --profile PROFILE | --built DIR]"
    echo "                  [--relocatable] [--pages-by PROGRAM]"
    echo "  --prefix DIR        where to (default: /usr/local); DESTDIR is put before it"
    echo "  --optimize          build what is released, which takes longer: --profile dist"
    echo "  --profile PROFILE   cargo profile to build with (default: release)"
    echo "  --built DIR         build nothing: install what is in DIR, such as target/release"
    echo "  --relocatable       the pkg-config file finds the prefix where it is itself: the directory may be moved"
    echo "  --pages-by PROGRAM  the trace-cli that prints manual pages and completions, if this machine cannot"
    echo "                      run the one that is installed; environment variable STRIP: the program that strips"
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

prefix=/usr/local
profile=release
built=
prefix_of_pc=
pages_by=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --profile | --built | --pages-by)
        [ $# -ge 2 ] || { usage >&2; exit 2; }
        case $1 in
        --prefix) prefix=$2 ;;
        --profile) profile=$2 ;;
        --built) built=$2 ;;
        --pages-by) pages_by=$2 ;;
        esac
        shift 2
        ;;
    --optimize) profile=dist; shift ;;
    --relocatable) prefix_of_pc='${pcfiledir}/../..'; shift ;;
    --help) usage; exit 0 ;;
    *) echo "install.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
    esac
done
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
case $built in
/* | "") ;;
*) built=$PWD/$built ;;
esac
case $pages_by in
/* | "") ;;
*) pages_by=$PWD/$pages_by ;;
esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cd "$here/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
to=${DESTDIR:-}$prefix

# Before minutes of building: can the result be installed?
mkdir -p "$to" || fail "cannot create $to: choose another --prefix, or run as root"
[ -w "$to" ] || fail "cannot write to $to: choose another --prefix, or run as root"

if [ -z "$built" ]; then
    cargo=${CARGO:-cargo}
    command -v "$cargo" >/dev/null || fail "cargo is missing: install Rust 1.93 or newer, or name what is built by --built DIR"
    target=$("$cargo" metadata --no-deps --format-version 1 |
        sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
    built=$target/$profile
    [ "$profile" = dev ] && built=$target/debug
    if [ -x "$built/trace-cli" ] && [ -f "$built/libannals_mpi.so" ]; then
        echo "install.sh: uses what is built in $built; what has changed since is built again"
    else
        processors=$(nproc 2>/dev/null || echo 1)
        minutes=$(sed -n "s/^$profile //p" "$here/packaging/minutes")
        : "${minutes:=$(sed -n 's/^release //p' "$here/packaging/minutes")}"
        # More than two processors help little: the end of the build links.
        [ "$processors" -gt 1 ] || minutes=$((minutes * 2))
        echo "install.sh: builds for about $minutes minutes on $processors processors (profile $profile); needs 1.5 GB in $target and 40 MB in $prefix"
    fi
    "$cargo" build --profile "$profile" -p libannals -p libannals-instrument -p annals-mpi -p annals-cli >&2
fi
[ -z "$pages_by" ] || [ -x "$pages_by" ] || fail "--pages-by: $pages_by is not a program"
for file in trace-cli libannals.so libannals.a libannals_instrument.so libannals_mpi.so; do
    [ -f "$built/$file" ] || fail "$built has no $file: build it first"
done

# What a program needs that links the archive: Rust's own library uses these.
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

# Symbols that only a debugger reads are a third of the size.
strip_copy() {
    if command -v "${STRIP:=strip}" >/dev/null; then "$STRIP" "$@"; fi
}

mkdir -p "$to/bin" "$to/lib/pkgconfig" "$to/include"
install -m 755 "$built/trace-cli" "$to/bin"
strip_copy --strip-all "$to/bin/trace-cli"
ln -sf trace-cli "$to/bin/trace-merge"
for library in libannals.so libannals_instrument.so libannals_mpi.so; do
    soname=$library.${version%.*}
    install -m 755 "$built/$library" "$to/lib/$library.$version"
    strip_copy --strip-unneeded "$to/lib/$library.$version"
    ln -sf "$library.$version" "$to/lib/$soname"
    ln -sf "$soname" "$to/lib/$library"
done
install -m 644 "$built/libannals.a" "$to/lib"
strip_copy --strip-debug "$to/lib/libannals.a"
install -m 644 "$here/include/annals.h" "$here/include/annals_t.h" \
    "$here/include/annals.hpp" "$to/include"
escaped=$(printf '%s' "${prefix_of_pc:-$prefix}" | sed -e 's/[\\&|]/\\&/g')
sed -e "s|@prefix@|$escaped|" -e "s|@version@|$version|" -e "s|@private@|$private|" \
    "$here/annals.pc.in" >"$to/lib/pkgconfig/annals.pc"

: "${pages_by:=$to/bin/trace-cli}"
man=$to/share/man/man1
mkdir -p "$man" "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" \
    "$to/share/fish/vendor_completions.d"
"$pages_by" man "$man" >/dev/null
ln -sf trace-cli-merge.1 "$man/trace-merge.1"
"$pages_by" completions bash >"$to/share/bash-completion/completions/trace-cli"
"$pages_by" completions zsh >"$to/share/zsh/site-functions/_trace-cli"
"$pages_by" completions fish >"$to/share/fish/vendor_completions.d/trace-cli.fish"

echo "installed Annals $version in $prefix ($(du -sm "$to/bin" "$to/lib" "$to/include" "$man" | awk '{ sum += $1 } END { print sum }') MB). Next:"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) echo "  export PATH=$prefix/bin:\$PATH" ;;
esac
echo "  trace-cli doctor        # is this machine ready for recording?"
echo "  trace-cli record -o run -- ./your-program"
