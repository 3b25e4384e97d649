#!/bin/sh
# copy_tree.sh FOLDER: this tree in FOLDER, without what was made in it; what was there before is removed.
set -eu
rm -rf "$1"
mkdir -p "$1"
tar --exclude-vcs --exclude=./build --exclude='./.*' --exclude='*.egg-info' --exclude=__pycache__ --exclude=node \
    --exclude=.node --exclude=.dropin --exclude=.prometheus -cf - . | tar -xf - -C "$1"
