#!/bin/sh
# Writes the locked requirements of the images, with the hash of every file of every package. Run
# `make lock-images` after each change of the dependencies or of constraints.txt.
#
#   docker/requirements/lock.sh UV
set -eu
uv=$1
cd "$(dirname "$0")/../.."

lock() { # OUTPUT, then what to resolve
    output=docker/requirements/$1
    shift
    {
        echo "# Written by \`make lock-images\`. Do not edit."
        "$uv" pip compile "$@" --quiet --generate-hashes --no-emit-package dragoman-client --no-annotate --no-header \
            --python-version 3.11 --constraint constraints.txt
    } >"$output.new"
    mv "$output.new" "$output"
}

lock cpu.txt pyproject.toml --extra cpu --extra cache --extra otel --extra jwt --universal
lock load.txt pyproject.toml --extra cpu --extra bench --universal
# CUDA packages exist for few platforms only.
lock gpu.txt pyproject.toml docker/requirements/gpu.in --extra gpu --extra cache --extra otel --extra jwt \
    --python-platform x86_64-manylinux_2_28
lock build.txt docker/requirements/build.in --universal
