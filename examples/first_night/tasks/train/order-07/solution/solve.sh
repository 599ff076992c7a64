#!/bin/bash
cd /app || exit 1
sort -n recipes.txt | head -n 1 > answer.txt
