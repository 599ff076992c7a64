#!/bin/bash
cd /app || exit 1
grep -c harbor budget.txt > answer.txt
