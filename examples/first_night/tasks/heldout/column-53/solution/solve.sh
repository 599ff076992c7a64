#!/bin/bash
cd /app || exit 1
cut -d, -f1 catalog.csv > answer.txt
