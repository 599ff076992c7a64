#!/usr/bin/env bash
# Builds the base image of the sandboxes, nightschool-base:bookworm: a minimal Debian 12 with python3-minimal.
# With debootstrap where apt can be used, so that no image registry is needed; else from Docker's own debian image.
# An interrupted build leaves nothing behind: the image appears in one step, and the work directory goes.
#
#   NIGHTSCHOOL_BASE_FROM=IMAGE   build on IMAGE, with `docker build`, instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/system.sh
. deploy/system.sh

SUITE=bookworm
PACKAGES=python3-minimal
TITLE="org.opencontainers.image.title=Nightschool sandbox base"
# Not /tmp, which may be small, or mounted without devices.
WORK_PREFIX=/var/tmp/nightschool-base
SEARCH_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The Debian mirror this machine already uses; empty where it uses none, and debootstrap then takes its own default.
own_mirror() {
    # shellcheck disable=SC2016  # apt's own variable
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1 || true
}

# The keyring that the machine's own configuration trusts for that mirror, if it names one.
own_keyring() {
    grep -rhsE '^Signed-By: */' /etc/apt/sources.list.d/debian*.sources | head -n 1 | sed 's/^Signed-By: *//' || true
}

# debootstrap says hundreds of lines: every 25th shows that it moves; warnings and errors all pass.
show_some() {
    local line n=0
    while IFS= read -r line; do
        case $line in
            I:*) n=$((n + 1)); [ $((n % 25)) != 0 ] || say "${line#I: }" ;;
            *) say "$line" ;;
        esac
    done
}

# Removes a work directory, and what debootstrap may have left mounted in it.
remove() {
    local mounted
    for mounted in proc sys dev/pts dev; do as_root umount -l "$1/root/$mounted" 2>/dev/null || true; done
    as_root rm -rf --one-file-system "$1"
}

# What a build that was killed could not remove itself. The directory's name ends in its process.
remove_leftovers() {
    local left
    for left in "$WORK_PREFIX".*; do
        if [ -d "$left" ] && [ ! -e "/proc/${left##*.}" ]; then remove "$left"; fi
    done
}

build_with_debootstrap() {
    local keyring mirror
    remove_leftovers
    work=$WORK_PREFIX.$$
    mkdir -m 700 "$work"
    trap 'remove "$work"' EXIT
    trap 'exit 130' INT TERM
    keyring=$(own_keyring)
    mirror=$(own_mirror)
    say "building $BASE_IMAGE with debootstrap: about a minute, 80 MB to download"
    as_root debootstrap --variant=minbase --include="$PACKAGES" ${keyring:+--keyring="$keyring"} \
        "$SUITE" "$work/root" ${mirror:+"$mirror"} 2>&1 | show_some
    say "importing it into Docker"
    # What apt fetched, and pages nobody reads in a sandbox: a third of the size.
    as_root tar -C "$work/root" --numeric-owner --one-file-system \
        --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' \
        --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' -c . |
        docker import --change "ENV PATH=$SEARCH_PATH" --change "ENV LANG=C.UTF-8" --change 'CMD ["/bin/bash"]' \
            --change "LABEL \"${TITLE%%=*}\"=\"${TITLE#*=}\"" - "$BASE_IMAGE" >&2
}

build_on() {
    say "building $BASE_IMAGE on $1 with docker build"
    docker build --label "$TITLE" --tag "$BASE_IMAGE" - >&2 <<DOCKERFILE
FROM $1
RUN apt-get update && apt-get install -y --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
DOCKERFILE
}

have_debootstrap() {
    [ "$(uname -s)" = Linux ] || return 1
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || return 1
    # Without Debian's keyring (Ubuntu has none) debootstrap would take unsigned packages.
    if [ -x /usr/sbin/debootstrap ] && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then return; fi
    system_packages "debootstrap, to build the base image," debootstrap debian-archive-keyring
}

main() {
    if [ -n "${NIGHTSCHOOL_BASE_FROM:-}" ]; then
        build_on "$NIGHTSCHOOL_BASE_FROM"
    elif have_debootstrap; then
        build_with_debootstrap
    else
        build_on "debian:$SUITE-slim" || fail "the base image $BASE_IMAGE could not be built." \
            "Either let Docker pull debian:$SUITE-slim, or build it on Debian or Ubuntu as root (deploy/base_image.sh) and bring it here" \
            "with docker save and docker load; or name an image of yours: NIGHTSCHOOL_BASE_FROM=IMAGE deploy/base_image.sh"
    fi
    say "$BASE_IMAGE is ready: $(docker image inspect --format '{{.Size}}' "$BASE_IMAGE" | awk '{ print int($1 / 1e6) }') MB"
}

main
