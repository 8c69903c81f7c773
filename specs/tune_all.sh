#!/bin/sh
# Tune a list of specs and sizes, one after the other or spread over GPUs:
#
#     specs/tune_all.sh [LIST] [--gpus 0,1] [--lanes N] [--until S] [--results DIR] [options of nautilusc tune...]
#     specs/tune_all.sh > results.jsonl               everything in tune_list.txt
#     specs/tune_all.sh --devices 0,1 --trials 200    the same, each spec longer and on two GPUs
#     specs/tune_all.sh --gpus 0,1,2,3 --lanes 2      specs spread over four GPUs, two at a time on each
#     specs/tune_all.sh my_list.txt --measure model   another list; estimates, no GPU
#
# A line of LIST is a spec (in the folder of this script, or a path) and its sizes: attention/causal_decode N=1024,B=8
# Only one lane of a GPU measures at a time; the others plan, compile and compare.
# No task starts after --until S seconds. Every result is printed at once as a line of JSON on standard output.
# A second run continues an interrupted one and prints finished results again (--results stores them in a folder; by
# default they are in the studies). Exit code 1: a task failed; 5: tasks are left; 130: interrupted.
# NAUTILUSC names the compiler.
set -u

usage() {
    sed -n '2,16s/^# \{0,1\}//p' "$0"
    exit "$1"
}

specs=$(dirname "$0")
list=$specs/tune_list.txt gpus='' lanes=1 until=0 results=''
case ${1-} in
-h | --help) usage 0 ;;
'' | -*) ;;
*)
    list=$1
    shift
    ;;
esac
while :; do
    case ${1-} in
    --gpus) gpus=$2 ;;
    --lanes) lanes=$2 ;;
    --until) until=$2 ;;
    --results) results=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ -r "$list" ] || {
    echo "$0: cannot read $list" >&2
    exit 2
}

own=$specs/../.venv/bin/nautilusc
if [ -z "${NAUTILUSC-}" ]; then
    if [ -x "$own" ]; then NAUTILUSC=$own; else NAUTILUSC=nautilusc; fi
fi
command -v "$NAUTILUSC" >/dev/null || {
    echo "$0: $NAUTILUSC is not here (make setup installs it into .venv; NAUTILUSC names another)" >&2
    exit 3
}

work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
[ -z "$results" ] || mkdir -p "$results" || exit 3
end=$(($(date +%s) + until))

# tune PATH SIZES NUMBER OPTIONS...: run one line of the list
tune() {
    path=$1 sizes=$2 out=$work/$3.json
    shift 3
    kept=$results/$(printf '%s' "$path $sizes" | tr -c 'A-Za-z0-9=,_' '-').json
    if [ -n "$results" ] && [ -s "$kept" ]; then
        cat "$kept"
        return
    fi
    if [ "$until" -gt 0 ] && [ "$(date +%s)" -ge "$end" ]; then
        : >"$work/short"
        return
    fi
    "$NAUTILUSC" tune "$path" ${sizes:+--dim "$sizes"} --resume --json "$@" </dev/null >"$out" &
    child=$!
    trap 'kill "$child" 2>/dev/null; : >"$work/stop"' TERM INT
    wait "$child"
    code=$?
    cat "$out"
    if [ "$code" -ge 128 ]; then
        : >"$work/stop"
    elif [ "$code" -ne 0 ]; then
        : >"$work/failed"
    elif [ -n "$results" ]; then
        mv "$out" "$kept"
    fi
}

# lane OPTIONS...: run every line that no other lane has started
lane() {
    number=0
    while read -r spec sizes || [ -n "$spec" ]; do
        number=$((number + 1))
        case $spec in
        '' | '#'*) continue ;;
        /* | ./*) path=$spec ;;
        *) path=$specs/$spec ;;
        esac
        case $path in
        *.naut) ;;
        *) path=$path.naut ;;
        esac
        [ ! -e "$work/stop" ] || return
        mkdir "$work/$number" 2>/dev/null || continue
        tune "$path" "$sizes" "$number" "$@"
    done <"$list"
}

if [ -z "$gpus" ]; then
    lane "$@"
else
    count=0
    for gpu in $(printf '%s' "$gpus" | tr ',' ' '); do count=$((count + lanes)); done
    jobs=$(($(getconf _NPROCESSORS_ONLN) / count))
    [ "$jobs" -ge 1 ] || jobs=1
    [ -z "$results" ] || set -- --storage memory "$@"
    pids=''
    each=0
    while [ "$each" -lt "$lanes" ]; do # the first lane of every GPU first
        for gpu in $(printf '%s' "$gpus" | tr ',' ' '); do
            lane --devices "$gpu" --jobs "$jobs" "$@" &
            pids="$pids $!"
        done
        each=$((each + 1))
    done
    trap 'kill $pids 2>/dev/null; : >"$work/stop"' INT TERM
    for pid in $pids; do wait "$pid"; done
    for pid in $pids; do wait "$pid"; done # a signal ends the first wait
fi
[ ! -e "$work/stop" ] || exit 130
[ ! -e "$work/failed" ] || exit 1
[ ! -e "$work/short" ] || exit 5
