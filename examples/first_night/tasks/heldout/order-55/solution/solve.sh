#!/bin/bash
cd /app || exit 1
sort -n invoice.txt | head -n 1 > answer.txt
