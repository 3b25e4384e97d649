#!/bin/sh
# install.sh PACKAGE…: as root, packages of the distribution, none of whose services starts now or with the machine.
#
# Debian starts a service when its package is installed, and with the machine from then on: a stock Redis on port 6379
# that nobody asked for. While ours are installed a policy forbids the one, and whatever policy was there is put back;
# against the other they are disabled, also where no systemd runs (in an image that is being built).
set -eu
policy=/usr/sbin/policy-rc.d
saved=$policy.lockd-saved

is_installed() {
    [ "$(dpkg-query --show --showformat '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]
}

forbid_services() {
    # Saved already when one like us was killed: then the policy that is in force is not the machine's.
    if [ -e "$policy" ] && [ ! -e "$saved" ]; then mv "$policy" "$saved"; fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

put_policy_back() {
    rm -f "$policy"
    if [ -e "$saved" ]; then mv "$saved" "$policy"; fi
}

# Its units, and what init had before there was systemd.
disable_services_of() {
    dpkg-query --listfiles "$1" | while read -r file; do
        case $file in
            */systemd/system/*@.*) ;;
            */systemd/system/*.service | */systemd/system/*.socket | */systemd/system/*.timer)
                DPKG_MAINTSCRIPT_PACKAGE=$1 deb-systemd-helper disable "${file##*/}" ;;
            /etc/init.d/*) update-rc.d "${file##*/}" disable ;;
        esac
    done
}

exec 9</var/lib/dpkg
flock 9 # one at a time on this machine
new=
for package in "$@"; do is_installed "$package" || new="$new $package"; done
[ -n "$new" ] || exit 0 # another one like us has done it meanwhile
trap put_policy_back EXIT
trap 'exit 130' INT TERM HUP
forbid_services
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null
for package in $new; do disable_services_of "$package"; done
[ ! -d /run/systemd/system ] || systemctl daemon-reload
