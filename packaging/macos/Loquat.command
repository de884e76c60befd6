#!/bin/sh
# What a double click on Loquat.app does: a terminal with a chat in it.
exec open -a Terminal /usr/local/bin/loquat
