#!/bin/sh
# newest_python.sh FOLDER WORD…: `python -m pytest WORD…` with the newest Python that pyproject.toml promises, on a copy
# of this tree, all of it in FOLDER. Which Python that is, is said: one of this machine's or, as root, the one of the
# Debian that has it, in a root file system of its own (made once). Where neither is to be had, that is said, too.
# OF_THIS_MACHINE=no leaves this machine's out.
set -eu
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
newest=$(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml | tail -n 1)
release=trixie
packages=python3-venv,openssl,ca-certificates

skipped() {
    echo "SKIPPED: no tests with Python $newest: $1"
    exit 0
}

# pyenv's shim of a version that isn't chosen is on the PATH, and fails.
works() {
    [ "$("$1" -c 'import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$newest" ]
}

of_this_machine() {
    [ "${OF_THIS_MACHINE:-}" != no ] || return 0
    for python in "python$newest" python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$newest".*/bin/python; do
        if works "$python"; then echo "$python" && return; fi
    done
}

# $1 is that Python, $2 the folder with the tree, as both are seen by who runs it.
RUN='
set -eu
python=$1; cd "$2"; shift 2
[ -e ../venv/.installed ] && cmp -s pyproject.toml ../venv/.installed || {
    rm -rf ../venv
    "$python" -m venv ../venv
    tests/setup/pip.sh ../venv pyproject.toml test
    cp pyproject.toml ../venv/.installed
}
../venv/bin/python --version
exec ../venv/bin/python -m pytest "$@"'

python=$(of_this_machine)
if [ -n "$python" ]; then
    echo "with $(command -v "$python")"
    "$here/copy_tree.sh" "$folder/tree"
    exec sh -c "$RUN" sh "$python" "$folder/tree" "$@"
fi

[ "$(id -u)" = 0 ] || skipped "no such interpreter here, and only root makes a root file system that has it"
command -v mmdebstrap >/dev/null || skipped "no such interpreter here, and no mmdebstrap"
root=$folder/root
if [ ! -d "$root" ]; then
    echo "making a root file system of Debian $release (once)"
    rm -rf "$root.part"
    mmdebstrap --quiet --variant=minbase --include="$packages" "$release" "$root.part" 2>"$folder/mmdebstrap.log" ||
        skipped "no such interpreter here, and $release could not be downloaded: $(tail -n 1 "$folder/mmdebstrap.log")"
    mv "$root.part" "$root"
fi
# The way to the package index is this machine's.
for path in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs /usr/local/share/ca-certificates; do
    [ -e "$path" ] || continue
    rm -rf "${root:?}$path"
    cp -aL "$path" "$root$path"
done
echo "with that of Debian $release, in $root"
"$here/copy_tree.sh" "$root/srv/tree"
# All that is mounted there is gone with the last process. As in a container, and unlike in a chroot, / is a mount: below
# it tests can make namespaces of their own.
exec unshare --mount --pid --fork --kill-child sh -c '
    root=$1; shift
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount -t tmpfs tmp tmp
    mount --rbind /dev dev
    mkdir -p old
    pivot_root . old
    umount -l /old
    exec env -u PIP_FIND_LINKS HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$@"' \
    sh "$root" "$RUN" sh python3 /srv/tree "$@"
