#!/bin/sh
# pip.sh ENVIRONMENT LOCK [EXTRA]: this tree, editable, and all that it needs with that extra. What takes long is done
# beside other environments, and the tree under LOCK: each time, lockd.egg-info is written into it.
set -eu
python=$1/bin/python
tree=$2
extra=${3:-}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
trap 'exit 130' INT TERM HUP

lock() {
    ! command -v flock >/dev/null || flock "$1"
}

install() {
    "$python" -m pip install --quiet --disable-pip-version-check "$compile" "$@"
}

# Of Ansible's 18,000 files most are never imported, and to compile them takes longer than all else.
compile=--compile
[ "$extra" != lab ] || compile=--no-compile
exec 8<"$1/pyvenv.cfg" 9<"$tree"
lock 8
"$python" "$(dirname "$0")/requirements.py" "$extra" >"$list"
install --requirement "$list"
lock 9
install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
