#!/bin/sh
# Compile npu-dra-libraries, a program that needs no other file: build.sh OUTPUT [FLAG...]
set -eu
output=$1
shift
cd "$(dirname "$0")"
exec cc -std=c11 -D_GNU_SOURCE -Os -Wall -Wextra -Werror -static -ffunction-sections \
    -Wl,--gc-sections -s "$@" -o "$output" ./*.c
