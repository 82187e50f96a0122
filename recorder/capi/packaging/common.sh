# What tarball.sh and deb.sh share: both install into a directory, by install.sh, what is built for other machines. Not a program.

script=$(basename "$0")
packaging=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$packaging/../../.." && pwd -P)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
backend=$root/viewer-cli/python/backend
machine=$(uname -m)

fail() {
    echo "$script: $*" >&2
    exit 1
}

# For arguments that are wrong. The script has the function `usage`.
refuse() {
    echo "$script: $*" >&2
    usage >&2
    exit 2
}

need_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        fail "Python 3.10 or newer is missing: install python3"
}

# Prints an absolute path; the directory or file must exist.
existing() {
    realpath --canonicalize-existing "$1" 2>/dev/null || fail "$2: $1 does not exist"
}

# Sets `pages` to arguments of install.sh: the program that prints manual pages and completions. For another processor that is this
# machine's trace-cli of the same version: what was built last is taken, if none is named ($2).
find_pages() {
    local arch=$1 given=$2 target program
    pages=()
    [ -n "$given" ] || [ "$arch" != "$machine" ] || return 0
    target=${CARGO_TARGET_DIR:-$root/target}
    for program in ${given:+"$given"} "$target"/{"$machine-unknown-linux-gnu/dist",dist,release,debug}/trace-cli; do
        [ "$("$program" --version 2>/dev/null)" = "trace-cli $version" ] || continue
        pages=(--pages-by "$program")
        return 0
    done
    fail "manual pages for $arch are printed by this machine's trace-cli $version: build that first, or name it by --pages-by"
}

# Installs below the directory $1 what is built in the directory $3 for the architecture $2. More arguments are those of install.sh.
install_into() {
    local to=$1 arch=$2 from=$3
    shift 3
    STRIP=$(python3 "$backend/annals_cargo.py" strip-program --arch "$arch")
    STRIP=$STRIP DESTDIR=$to bash "$root/recorder/capi/install.sh" --built "$from" "${pages[@]}" "$@" >/dev/null
}

# Prints the directory where everything is built for other machines of an architecture.
build() {
    python3 "$backend/annals_cargo.py" build --profile dist --arch "$1"
}
