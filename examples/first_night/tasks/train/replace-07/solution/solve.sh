#!/bin/bash
cd /app || exit 1
sed -i 's/feather/winter/g' summary.txt
