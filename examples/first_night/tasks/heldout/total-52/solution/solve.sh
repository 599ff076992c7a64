#!/bin/bash
cd /app || exit 1
awk '{s+=$2} END {print s}' tickets.txt > answer.txt
