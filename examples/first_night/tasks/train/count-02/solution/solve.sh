#!/bin/bash
cd /app || exit 1
grep -c carrot roster.txt > answer.txt
