#!/usr/bin/env bash
# Makes a Debian package of all that install.sh installs, by cargo-deb (cargo install cargo-deb).
# Arguments go to install.sh, such as --built target/release. Prints the path of the package.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cargo deb --version >/dev/null 2>&1 || {
    echo "deb.sh: cargo-deb is missing: cargo install cargo-deb" >&2
    exit 1
}
built=()
while [ $# -gt 0 ]; do
    case $1 in
    --built | --profile)
        [ $# -ge 2 ] || { echo "usage: deb.sh [--profile PROFILE | --built DIR]" >&2; exit 2; }
        [ "$1" = --built ] && built+=("$1" "$(realpath "$2")") || built+=("$1" "$2")
        shift 2
        ;;
    *) echo "usage: deb.sh [--profile PROFILE | --built DIR]" >&2; exit 2 ;;
    esac
done
cd "$here/../.."
# The assets of the package in viewer-cli/Cargo.toml are what lies here.
stage=target/package
rm -rf "$stage"
mkdir -p "$stage"
DESTDIR=$PWD/$stage bash "$here/install.sh" --prefix /usr "${built[@]}" >&2
gzip -9n "$stage"/usr/share/man/man1/trace-cli*.1
ln -sf trace-cli-merge.1.gz "$stage/usr/share/man/man1/trace-merge.1.gz"
rm "$stage/usr/share/man/man1/trace-merge.1"
# Debian's place for zsh.
mkdir -p "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_trace-cli" "$stage/usr/share/zsh/vendor-completions/"
cargo deb --quiet --package annals-cli --no-build --no-strip
