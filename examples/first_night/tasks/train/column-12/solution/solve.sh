#!/bin/bash
cd /app || exit 1
cut -d, -f1 summary.csv > answer.txt
