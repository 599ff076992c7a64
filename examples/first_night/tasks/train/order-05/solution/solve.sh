#!/bin/bash
cd /app || exit 1
sort -n draft.txt | head -n 1 > answer.txt
