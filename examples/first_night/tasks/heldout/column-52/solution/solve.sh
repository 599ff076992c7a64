#!/bin/bash
cd /app || exit 1
cut -d, -f2 catalog.csv > answer.txt
