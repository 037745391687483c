#!/bin/sh
# Fails when the kernels in the repository are not what the generator writes.
set -eu
cd "$(dirname "$0")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
./generate.sh "$fresh"
for f in kernels_amd64.s stubs_amd64.go; do
	diff -u "../$f" "$fresh/$f"
done
