#!/usr/bin/env bash
# Makes a Debian package of all that install.sh installs, by dpkg-deb. Builds first, by zig's compiler from
# PyPI and Cargo's profile `dist`, for glibc 2.28 or later. Prints the path of the package.
set -euo pipefail

usage() {
    echo "usage: deb.sh [--arch amd64|arm64] [--built DIR [--this-machine] | --profile PROFILE] [--pages-by PROGRAM]"
    echo "  --arch ARCH         the processor that it is for, as Debian names it (default: this machine's)"
    echo "  --built DIR         build nothing: pack what is in DIR, such as target/x86_64-unknown-linux-gnu/dist"
    echo "  --this-machine      what is in DIR is for this machine's glibc: the package depends on that"
    echo "  --profile PROFILE   build with this machine's compiler, for its glibc"
    echo "  --pages-by PROGRAM  the trace-cli that prints manual pages, if the processor is another one (default: what is built)"
}

. "$(dirname "${BASH_SOURCE[0]}")/packaging/common.sh"

arch=$machine
built=
profile=
is_for_others=1
pages_by=
while [ $# -gt 0 ]; do
    case $1 in
    --arch | --built | --profile | --pages-by)
        [ $# -ge 2 ] || refuse "$1 needs a value"
        case $1 in
        --arch)
            case $2 in
            amd64) arch=x86_64 ;;
            arm64) arch=aarch64 ;;
            *) refuse "unknown architecture '$2': expected amd64 or arm64" ;;
            esac
            ;;
        --built) built=$2 ;;
        --profile) profile=$2 ;;
        --pages-by) pages_by=$2 ;;
        esac
        shift 2
        ;;
    --this-machine) is_for_others=; shift ;;
    --help) usage; exit 0 ;;
    *) refuse "unknown argument '$1'" ;;
    esac
done
[ -z "$built" ] || [ -z "$profile" ] || refuse "--built and --profile exclude each other"
[ -z "$profile" ] || is_for_others=
[ -n "$is_for_others" ] || [ -n "$built$profile" ] || refuse "--this-machine needs --built DIR"
[ -n "$is_for_others" ] || [ "$arch" = "$machine" ] || refuse "what is for this machine is for its processor ($machine) only"
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: install dpkg"
need_python
[ -z "$built" ] || built=$(existing "$built" --built)
[ -z "$pages_by" ] || pages_by=$(existing "$pages_by" --pages-by)
find_pages "$arch" "$pages_by"

if [ -n "$profile" ]; then
    built=$(python3 "$backend/annals_cargo.py" build --profile "$profile")
elif [ -z "$built" ]; then
    built=$(build "$arch")
fi
cd "$root"
stage=target/package
rm -rf "$stage"
mkdir -p "$stage"
install_into "$PWD/$stage" "$arch" "$built" --prefix /usr
gzip -9n "$stage"/usr/share/man/man1/trace-cli*.1
ln -sf trace-cli-merge.1.gz "$stage/usr/share/man/man1/trace-merge.1.gz"
rm "$stage/usr/share/man/man1/trace-merge.1"
# Debian's place for zsh.
mkdir -p "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_trace-cli" "$stage/usr/share/zsh/vendor-completions/"
if [ -n "$is_for_others" ]; then
    problems=$(python3 "$backend/annals_check.py" --only-programs "$arch" "$stage") ||
        fail "what is built in $built makes no package:"$'\n'"$problems"
fi
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
esac
depends=$(python3 "$backend/annals_check.py" --depends "$arch" "$stage/usr")
mkdir -p "$stage/usr/share/doc/annals" "$stage/DEBIAN"
{
    echo "Annals is licensed under either of two licences, at your choice."
    for license in "$root/LICENSE-MIT" "$root/LICENSE-APACHE"; do
        echo
        cat "$license"
    done
} >"$stage/usr/share/doc/annals/copyright"
cat >"$stage/DEBIAN/control" <<CONTROL
Package: annals
Version: $version-1
Section: devel
Priority: optional
Architecture: $debian
Maintainer: The Annals developers <annals@localhost>
Installed-Size: $(du -sk "$stage/usr" | cut -f 1)
Depends: $depends
Description: records programs, merges recordings, and answers questions about traces
 Records what a parallel program does, event by event, and puts the events of all its processes into one global order.
 Contains trace-cli and trace-merge, the libraries that record MPI and compiled functions, and headers for C and C++.
CONTROL
chmod -R u+rwX,go+rX,go-w "$stage"
package=${CARGO_TARGET_DIR:-target}/debian/annals_$version-1_$debian.deb
mkdir -p "$(dirname "$package")"
dpkg-deb --root-owner-group --build "$stage" "$package" >&2
realpath "$package"
