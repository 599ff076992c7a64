#!/bin/bash
cd /app || exit 1
sort -n journal.txt | tail -n 1 > answer.txt
