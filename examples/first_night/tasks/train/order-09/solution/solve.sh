#!/bin/bash
cd /app || exit 1
sort -n budget.txt | tail -n 1 > answer.txt
