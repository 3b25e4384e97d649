#!/bin/sh
# tools.sh COMMAND:PACKAGE…: as root, installs the packages of the commands that this machine lacks (several packages
# of one command: with commas between). What is no command is named by its path. A test without its tool is skipped.
set -eu
missing=
for tool in "$@"; do
    name=${tool%%:*}
    command -v "$name" >/dev/null || [ -e "$name" ] || missing="$missing $(echo "${tool#*:}" | tr , ' ')"
done
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed (needs root and apt-get), tests that use them will be skipped:$missing"
    exit 0
fi
echo "installing$missing"
# shellcheck disable=SC2086 # a word for each package
exec "$(dirname "$0")/install.sh" $missing
