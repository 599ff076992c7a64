#!/bin/bash
cd /app || exit 1
cut -d, -f2 roster.csv > answer.txt
