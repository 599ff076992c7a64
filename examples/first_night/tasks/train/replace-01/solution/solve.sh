#!/bin/bash
cd /app || exit 1
sed -i 's/plum/forest/g' tasks.txt
