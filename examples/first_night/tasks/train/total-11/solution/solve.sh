#!/bin/bash
cd /app || exit 1
awk '{s+=$3} END {print s}' letters.txt > answer.txt
