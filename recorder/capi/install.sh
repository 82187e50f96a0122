#!/usr/bin/env bash
# Builds Annals and installs it below a prefix: bin/trace-cli and its second name bin/trace-merge, lib/libannals.so and .a,
# lib/libannals_instrument.so and libannals_mpi.so, include/annals.h and annals.hpp, lib/pkgconfig/annals.pc.
set -euo pipefail

usage() {
    echo "usage: install.sh [--prefix DIR] [--profile PROFILE | --built DIR]"
    echo "  --prefix DIR       where to (default: /usr/local); DESTDIR is put before it"
    echo "  --profile PROFILE  cargo profile to build with (default: release)"
    echo "  --built DIR        build nothing: install what is in DIR, such as target/release"
}

prefix=/usr/local
profile=release
built=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --profile | --built)
        [ $# -ge 2 ] || { usage >&2; exit 2; }
        case $1 in
        --prefix) prefix=$2 ;;
        --profile) profile=$2 ;;
        --built) built=$2 ;;
        esac
        shift 2
        ;;
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

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
cargo=${CARGO:-cargo}
if [ -z "$built" ]; then
    "$cargo" build --profile "$profile" -p libannals -p libannals-instrument -p annals-mpi -p annals-cli >&2
    target=$("$cargo" metadata --no-deps --format-version 1 |
        sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
    built=$target/$profile
    [ "$profile" = dev ] && built=$target/debug
fi
for file in trace-cli libannals.so libannals.a libannals_instrument.so libannals_mpi.so; do
    [ -f "$built/$file" ] || { echo "install.sh: $built has no $file: build it first" >&2; exit 1; }
done

version=$("$cargo" pkgid -p annals-capi | sed -E 's/.*[#@]//')
# What a program needs that links the archive: Rust's own library uses these.
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

to=${DESTDIR:-}$prefix
mkdir -p "$to/bin" "$to/lib/pkgconfig" "$to/include"
install -m 755 "$built/trace-cli" "$to/bin"
ln -sf trace-cli "$to/bin/trace-merge"
for library in libannals.so libannals_instrument.so libannals_mpi.so; do
    soname=$library.${version%.*}
    install -m 755 "$built/$library" "$to/lib/$library.$version"
    ln -sf "$library.$version" "$to/lib/$soname"
    ln -sf "$soname" "$to/lib/$library"
done
install -m 644 "$built/libannals.a" "$to/lib"
install -m 644 "$here/include/annals.h" "$here/include/annals_t.h" \
    "$here/include/annals.hpp" "$to/include"
escaped=$(printf '%s' "$prefix" | sed -e 's/[\\&|]/\\&/g')
sed -e "s|@prefix@|$escaped|" -e "s|@version@|$version|" -e "s|@private@|$private|" \
    "$here/annals.pc.in" >"$to/lib/pkgconfig/annals.pc"
echo "installed Annals $version in $prefix"
