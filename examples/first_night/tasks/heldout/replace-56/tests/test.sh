#!/bin/bash
# Grades /app by what is beside this script: expected/ (files that must be there; newlines at the end free),
# unchanged/ (files that must be there, byte for byte) and gone (paths that must not). Writes 1 or 0.
PATH=/usr/bin:/bin
export LC_ALL=C
tests=$(dirname "$0")

regular() {
    [ -f "$1" ] && [ "$(stat -c %s "$1")" -le 65536 ]
}

same_but_for_the_last_newline() {
    regular "$2" && [ "$(cat "$1")" = "$(tr '\0' '?' < "$2")" ]
}

same_bytes() {
    regular "$2" && cmp -s "$1" "$2"
}

each_file() {
    local wanted
    [ -d "$tests/$1" ] || return 0
    while IFS= read -r wanted; do
        "$2" "$tests/$1/$wanted" "/app/$wanted" || return 1
    done < <(cd "$tests/$1" && find . -type f)
}

right() {
    local path
    # Behind a link could be anything, the verifier's own files included.
    [ ! -L /app ] && [ -z "$(find /app -type l -print -quit)" ] || return 1
    each_file expected same_but_for_the_last_newline && each_file unchanged same_bytes || return 1
    while IFS= read -r path; do
        [ ! -e "/app/$path" ] || return 1
    done < "$tests/gone"
}

if right; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
