#!/bin/sh
# Fails when the assembly in the repository is not what the generator writes.
set -eu
cd "$(dirname "$0")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
./generate.sh "$fresh"
for f in quant/kernels_amd64.s quant/stubs_amd64.go internal/floor/loops_amd64.s internal/floor/stubs_amd64.go; do
	diff -u "../../$f" "$fresh/$f"
done
