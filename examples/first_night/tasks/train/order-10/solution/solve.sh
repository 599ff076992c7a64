#!/bin/bash
cd /app || exit 1
sort -n roster.txt | head -n 1 > answer.txt
