#!/bin/bash
cd /app || exit 1
cut -d, -f1 minutes.csv > answer.txt
