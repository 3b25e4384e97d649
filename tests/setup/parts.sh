#!/bin/sh
# parts.sh TITLE COMMAND [TITLE COMMAND]…: runs them one after the other, up to the first that fails, and says which it
# is, of how many, and how long each took. A TITLE that begins with '& ' is run beside those after it, with what they
# leave of the processors; what it says comes last.
set -u
many=$(($# / 2))
number=0
failed=0
table=
beside=
beside_title=
said=

spent() {
    printf '%d:%02d' $((($1 - $2) / 60)) $((($1 - $2) % 60))
}

end_beside() {
    [ -z "$beside" ] || kill -- "-$beside" 2>/dev/null
    [ -z "$said" ] || rm -f "$said"
}
trap end_beside EXIT
trap 'exit 130' INT TERM HUP

ended() { # its number, title, status, how long
    if [ "$3" -eq 0 ]; then how=well; else how="FAILED with status $3"; failed=$3; fi
    table="$table  $1 $4  $2: $how
"
}

# A session of its own: the kernel shares the processors out among sessions first, and niceness counts within one.
run_beside() {
    said=$(mktemp)
    setsid nice -n 19 sh -c '(echo 19 >/proc/self/autogroup) 2>/dev/null; sh -c "$0"; status=$?; date +%s; exit $status' \
        "$1" >"$said" 2>&1 </dev/null &
    beside=$!
}

began=$(date +%s)
while [ $# -gt 0 ] && [ $failed -eq 0 ]; do
    number=$((number + 1))
    started=$(date +%s)
    case $1 in
    '& '*)
        beside_title=${1#& } beside_number=$number beside_started=$started
        echo "=== part $number of $many: $beside_title, beside what follows (after $(spent "$started" "$began"))"
        run_beside "$2"
        ;;
    *)
        echo "=== part $number of $many: $1 (after $(spent "$started" "$began"))"
        status=0
        sh -c "$2" || status=$?
        ended $number "$1" $status "$(spent "$(date +%s)" "$started")"
        ;;
    esac
    shift 2
done
if [ -n "$beside" ] && [ $failed -eq 0 ]; then
    echo "=== waiting for part $beside_number, $beside_title (after $(spent "$(date +%s)" "$began"))"
    status=0
    wait "$beside" || status=$?
    beside=
    sed '$d' "$said"
    ended $beside_number "$beside_title" $status "$(spent "$(tail -n 1 "$said")" "$beside_started")"
fi
printf '=== %d of %d parts in %s min\n%s' $number $many "$(spent "$(date +%s)" "$began")" "$table"
exit $failed
