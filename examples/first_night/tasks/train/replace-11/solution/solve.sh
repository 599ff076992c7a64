#!/bin/bash
cd /app || exit 1
sed -i 's/desert/linen/g' summary.txt
