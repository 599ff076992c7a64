#!/bin/bash
cd /app || exit 1
grep -c anchor catalog.txt > answer.txt
