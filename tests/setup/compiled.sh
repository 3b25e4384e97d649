#!/bin/sh
# compiled.sh PYTHON FOLDER: the compiled wheel (setup.py) of this tree in FOLDER, and in FOLDER/tree the tree with
# that wheel's lockd. Without a C compiler or Python's headers nothing is made, and why is said.
set -eu
python=$1
folder=$2
rm -rf "$folder"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
lacks=
command -v "${CC:-cc}" >/dev/null || lacks="a C compiler"
[ -e "$headers/Python.h" ] || lacks="${lacks:+$lacks and }$headers/Python.h"
if [ -n "$lacks" ]; then
    echo "SKIPPED: no compiled build without $lacks"
    exit 0
fi
"$(dirname "$0")/copy_tree.sh" "$folder/tree"
LOCKD_COMPILED=1 "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$folder" "$folder/tree"
rm -rf "$folder/tree/build" "$folder/tree"/*.egg-info
"$python" -m zipfile -e "$folder"/lockd-*.whl "$folder/tree"
