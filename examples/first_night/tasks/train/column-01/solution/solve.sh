#!/bin/bash
cd /app || exit 1
cut -d, -f1 report.csv > answer.txt
