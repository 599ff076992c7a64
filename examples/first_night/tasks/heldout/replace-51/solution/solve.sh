#!/bin/bash
cd /app || exit 1
sed -i 's/parrot/acorn/g' memo.txt
