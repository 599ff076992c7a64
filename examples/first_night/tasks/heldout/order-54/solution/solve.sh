#!/bin/bash
cd /app || exit 1
sort -n catalog.txt | head -n 1 > answer.txt
