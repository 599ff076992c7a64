#!/bin/bash
cd /app || exit 1
sort -n expenses.txt | tail -n 1 > answer.txt
