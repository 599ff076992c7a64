#!/bin/bash
cd /app || exit 1
cut -d, -f1 scores.csv > answer.txt
