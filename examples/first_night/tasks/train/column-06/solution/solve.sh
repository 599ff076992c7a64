#!/bin/bash
cd /app || exit 1
cut -d, -f3 report.csv > answer.txt
