#!/bin/bash
cd /app || exit 1
cut -d, -f2 inventory.csv > answer.txt
