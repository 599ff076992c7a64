#!/bin/bash
cd /app || exit 1
awk '{s+=$3} END {print s}' readings.txt > answer.txt
