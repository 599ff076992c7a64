#!/bin/bash
cd /app || exit 1
sort -n guests.txt | head -n 1 > answer.txt
