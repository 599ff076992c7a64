#!/bin/bash
cd /app || exit 1
sed -i 's/parrot/walrus/g' readings.txt
