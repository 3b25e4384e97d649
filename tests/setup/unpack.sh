#!/bin/sh
# unpack.sh FOLDER PACKAGE…: packages of the distribution, unpacked there and not installed: needs no root, starts no
# service, and leaves the machine as it is. FOLDER/.unpacked says that all of them are there.
# Exit status 1: they could not be downloaded.
set -eu
folder=$1
shift
rm -rf "$folder/.apt"
mkdir -p "$folder/.apt/lists/partial" "$folder/.apt/archives/partial"
folder=$(cd "$folder" && pwd)
trap 'rm -rf "$folder/.apt"' EXIT
trap 'exit 130' INT TERM HUP

# The sandbox of apt is another user, who may not look into this folder. Who says nothing for so long is given up.
fetch() {
    (cd "$folder/.apt" &&
        apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=1 -o Acquire::http::Timeout=30 "$@") >/dev/null 2>&1
}
# A machine that has never asked for the lists of packages, or has old ones, keeps them; those asked for here are ours.
fetch_with_own_lists() {
    own="-o Dir::State::lists=$folder/.apt/lists -o Dir::Cache=$folder/.apt"
    # shellcheck disable=SC2086 # two options each
    fetch $own update && fetch $own download "$@"
}
fetch download "$@" || fetch_with_own_lists "$@" || exit 1
for package in "$folder"/.apt/*.deb; do
    dpkg -x "$package" "$folder"
done

# Debian's Alertmanager reads templates from below /usr/share, and nothing can tell it of another place: in this copy
# the path is as long as it was and relative, and what is called by its name goes to where that leads.
# So the names of files that it is given must be absolute.
program=$folder/usr/bin/prometheus-alertmanager
if [ -e "$program" ]; then
    LC_ALL=C sed 's#/usr/share/prometheus/alertmanager#usr//share/prometheus/alertmanager#g' "$program" >"$program.unpacked"
    chmod +x "$program.unpacked"
    printf '#!/bin/sh\ncd "$(dirname "$0")/../.." && exec usr/bin/prometheus-alertmanager.unpacked "$@"\n' >"$program"
fi
touch "$folder/.unpacked"
