#!/bin/bash
# Prints the least version of the GNU C library that has every symbol which a program asks for.
#
#     packaging/glibc.sh BINARY
set -euo pipefail
objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | sed 's/GLIBC_//'
