#!/usr/bin/env bash
# Makes annals-<version>-linux-<arch>.tar.gz of all that install.sh installs, with the manual: for every Linux with glibc 2.28 or later,
# wherever it is unpacked. Builds first, by zig's compiler from PyPI and Cargo's profile `dist`. Prints the path of the tarball.
set -euo pipefail

usage() {
    echo "usage: tarball.sh [--arch x86_64|aarch64] [--built DIR [--this-machine]] [--pages-by PROGRAM] [--output DIR]"
    echo "  --arch ARCH         the processor that it is for (default: this machine's)"
    echo "  --built DIR         build nothing: pack what is in DIR, such as target/x86_64-unknown-linux-gnu/dist"
    echo "  --this-machine      what is in DIR is for this machine's glibc: that it runs on others is not checked"
    echo "  --pages-by PROGRAM  the trace-cli that prints manual pages, if the processor is another one (default: what is built)"
    echo "  --output DIR        where to write it (default: target)"
}

. "$(dirname "${BASH_SOURCE[0]}")/packaging/common.sh"

arch=$machine
built=
pages_by=
output=
check=()
while [ $# -gt 0 ]; do
    case $1 in
    --arch | --built | --pages-by | --output)
        [ $# -ge 2 ] || refuse "$1 needs a value"
        case $1 in
        --arch) arch=$2 ;;
        --built) built=$2 ;;
        --pages-by) pages_by=$2 ;;
        --output) output=$2 ;;
        esac
        shift 2
        ;;
    --this-machine) check=(--this-machine); shift ;;
    --help) usage; exit 0 ;;
    *) refuse "unknown argument '$1'" ;;
    esac
done
case $arch in
x86_64 | aarch64) ;;
*) refuse "unknown architecture '$arch': expected x86_64 or aarch64" ;;
esac
[ ${#check[@]} -eq 0 ] || [ -n "$built" ] || refuse "--this-machine needs --built DIR"
need_python
command -v readelf >/dev/null || fail "readelf is missing: install binutils"
# Before minutes of building.
output=${output:-$root/target}
mkdir -p "$output" || fail "cannot create $output: choose another --output"
output=$(existing "$output" --output)
[ -z "$built" ] || built=$(existing "$built" --built)
[ -z "$pages_by" ] || pages_by=$(existing "$pages_by" --pages-by)
find_pages "$arch" "$pages_by"

[ -n "$built" ] || built=$(build "$arch")
name=annals-$version-linux-$arch
work=$(mktemp -d "$output/tarball.XXXXXX")
trap 'rm -rf "$work"' EXIT
top=$work/$name
install_into "" "$arch" "$built" --prefix "$top" --relocatable
mkdir -p "$top/share/doc/annals/manual"
cp -R "$root/viewer-cli/book/src/." "$top/share/doc/annals/manual/"
cp "$root/LICENSE-APACHE" "$root/LICENSE-MIT" "$root/CHANGELOG.md" "$top/"
sed -e "s/@version@/$version/g" -e "s/@arch@/$arch/g" "$packaging/tarball.md" >"$top/README.md"

problems=$(python3 "$backend/annals_check.py" "${check[@]}" "$arch" "$top") ||
    fail "what is built in $built makes no tarball:"$'\n'"$problems"

# Without times and owners of this machine: the same files make the same tarball.
chmod -R u+rwX,go+rX,go-w "$top"
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 "$name" |
    gzip --best --no-name >"$work/$name.tar.gz"
mv "$work/$name.tar.gz" "$output/"
echo "$output/$name.tar.gz"
